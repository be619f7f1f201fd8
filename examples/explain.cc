// SPDX-License-Identifier: Apache-2.0
// Asks why the selector chose a kernel, and gets the answer as data, text and JSON.
#include <yard/yard.h>

#include <string>

#include "check.h"

int main() {
  // [explain]
  yard::Explanation e = yard::explain("softmax(f32[64,1000])@cpu").value();
  std::printf("%s\n", e.selected.c_str());
  for (const yard::Candidate& c : e.candidates)
    std::printf("%s %s %s\n", c.id.c_str(), c.verdict.c_str(), c.reason.c_str());
  std::puts(e.to_text().c_str());  // a table
  std::puts(e.to_json().c_str());  // as `yard explain --json`, on one line
  // [/explain]
  CHECK(!e.selected.empty() && e.candidates[0].verdict == "selected");

  // [denied]
  yard::Options options;
  options.deny = {"*"};
  yard::Explanation denied = yard::explain("softmax(f32[64,1000])", options).value();
  CHECK(denied.selected.empty());
  CHECK(denied.candidates[0].reason == "denied_kernel");
  std::puts(denied.counterfactuals[0].c_str());
  // [/denied]
  CHECK(denied.counterfactuals[0].find("would have been first") != std::string::npos);
}
