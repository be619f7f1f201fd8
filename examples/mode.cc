// SPDX-License-Identifier: Apache-2.0
// Fixes kernels in the program, and adds a mode.
#include <yard/yard.h>

#include <cstdio>
#include <string>
#include <vector>

#include "check.h"

int main() {
  yard::Runtime runtime;
  const auto chosen = [&](const char* call, const yard::Options& o = {}) {
    return runtime.resolve(call, o).value().kernel;
  };
  const std::string usual = chosen("softmax(f32[64,1000])");

  // [map]
  // With an error nothing changes.
  runtime.rules().set_static_map({{"softmax", "reference.cpp"}}).or_throw();
  CHECK(chosen("softmax(f32[64,1000])") == "reference.cpp");
  runtime.rules().set_static_map({}).or_throw();  // takes it back
  // [/map]
  CHECK(chosen("softmax(f32[64,1000])") == usual);
  CHECK(!runtime.rules().set_static_map({{"sofmax", "reference.cpp"}}).ok());

  // [fallback]
  yard::Config rules;
  rules.settings.mode = "static";
  rules.settings.mode_fallback = {"config", "dynamic"};
  runtime.rules().set(rules).or_throw();
  CHECK(chosen("softmax(f32[64,1000])") == usual);  // no map, no rule: as in mode dynamic
  // [/fallback]
  rules.settings.mode_fallback.clear();
  runtime.rules().set(rules).or_throw();
  CHECK(!runtime.resolve("softmax(f32[64,1000])").ok());
  runtime.rules().load("").or_throw();

  // [provider]
  yard::ModeProvider small_by_reference;
  small_by_reference.reads = {"rows"};  // nothing else of a call makes a difference
  small_by_reference.plan = [](const yard::ModeCall& call) -> std::vector<std::string> {
    if (call.read[0] < 16) return {"reference.cpp"};
    return {};  // no answer: as in mode dynamic
  };
  runtime.rules().add_mode("small_by_reference", small_by_reference).or_throw();
  // [/provider]

  // [named]
  yard::Options options;
  options.mode_name = "small_by_reference";  // for one call
  CHECK(chosen("softmax(f32[4,1000])", options) == "reference.cpp");
  CHECK(chosen("softmax(f32[64,1000])", options) == usual);
  {
    yard::ScopedPolicy in(yard::Scope().mode("small_by_reference"));  // for a block
    CHECK(chosen("softmax(f32[4,1000])") == "reference.cpp");
  }
  yard::Config config;
  config.settings.modes["softmax"] = "small_by_reference";  // as a rule file would say it
  runtime.rules().set(config).or_throw();
  CHECK(chosen("softmax(f32[4,1000])") == "reference.cpp");
  // [/named]
  CHECK(runtime.rules().remove_mode("small_by_reference").code() == yard::Code::kConflict);

  // [kernel]
  yard::ModeProvider looked_up;  // a table of tuned calls, say
  looked_up.kernel = [](std::string_view call) -> std::string {
    return call == "softmax(f32[4,1000])@cpu" ? "reference.cpp" : "";
  };
  runtime.rules().add_mode("looked_up", looked_up).or_throw();
  // [/kernel]
  options.mode_name = "looked_up";
  CHECK(chosen("softmax(f32[4,1000])", options) == "reference.cpp");

  // [remove]
  runtime.rules().load("").or_throw();  // a mode that rules in force name is not removed
  runtime.rules().remove_mode("small_by_reference").or_throw();
  options.mode_name = "small_by_reference";
  std::puts(runtime.resolve("softmax(f32[4,1000])", options).status().to_string().c_str());
  // [/remove]
  CHECK(!runtime.resolve("softmax(f32[4,1000])", options).ok());
}
