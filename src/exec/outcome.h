// SPDX-License-Identifier: Apache-2.0
// What became of a plan's kernels in one call: all that health wants to know, as data.
#pragma once

#include <yard/status.h>

#include <string>
#include <vector>

#include "exec/plan.h"

namespace yard::exec {

struct Failure {
  const Attempt* attempt;
  ErrorClass error;
  int32_t code;      // that the kernel returned
  std::string said;  // by the kernel, or that it said nothing
};

struct Outcome {
  std::vector<Failure> failures;    // in the order they were tried
  const Attempt* served = nullptr;  // null: none
};

}  // namespace yard::exec
