// SPDX-License-Identifier: Apache-2.0
// Shows the options of one call, and what the call reports about itself.
#include <yard/yard.h>

#include <chrono>
#include <string>
#include <vector>

#include "check.h"

inline constexpr yard::Op<void(yard::Out, yard::In)> softmax{"softmax"};

int main() {
  std::vector<float> x(8 * 64, 1.0f), out(8 * 64);
  const yard::TensorView tx = yard::view(x, {8, 64}), tout = yard::view(out, {8, 64});

  // [record]
  yard::ResultRecord record;
  yard::Options options;
  options.force = "reference.cpp";
  options.result = &record;
  softmax.with(options)(tout, tx).or_throw();
  std::printf("%s, %d kernel(s) tried, %ld ns\n", record.kernel, record.attempts,
              long(record.run_ns));
  // [/record]
  CHECK(std::string(record.kernel) == "reference.cpp" && record.attempts == 1 && !record.cached);
  softmax.with(options)(tout, tx).or_throw();
  CHECK(record.cached);

  // [policy]
  yard::Options strict;
  strict.policy.emplace().strict = true;  // the first choice or its error
  strict.deterministic = true;            // the same bits every time
  strict.labels["model"] = "llama";
  softmax.with(strict)(tout, tx).or_throw();
  // [/policy]

  // [deadline]
  yard::Options late;
  late.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  CHECK(softmax.with(late)(tout, tx).code() == yard::Code::kDeadline);
  // [/deadline]

  yard::Options unknown;
  unknown.force = "reference.cc";
  CHECK(softmax.with(unknown)(tout, tx).code() == yard::Code::kNotFound);
}
