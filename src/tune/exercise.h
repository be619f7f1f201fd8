// SPDX-License-Identifier: Apache-2.0
// Running kernels a little, only to see whether they survive it and leave alone what is not theirs. Whether
// what they compute is right is for conformance.h.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tune/conformance.h"

namespace yard::tune {

struct ExerciseOptions {
  size_t cases = 4;  // that each kernel takes
  int64_t max_elements = 2048;
  uint64_t seed = 1;
  // Called before each run.
  std::function<void(std::string_view kernel, const VerifyCase&)> watch;
};

struct Exercised {
  size_t kernels = 0, runs = 0;
  // What a kernel did that none may do; it was the last to run.
  std::string damage;
};

// Kernels may fail and decline. Calls that the op's reference kernel calls wrong are not made.
Exercised exercise(const Subject& subject, const ExerciseOptions& options);

}  // namespace yard::tune
