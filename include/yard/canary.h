// SPDX-License-Identifier: Apache-2.0
// What numerical canaries have seen: how many calls were looked at, and which had wrong results.
//
// The rule file says whose calls are looked at, and how many of them (canary, docs/guides/canaries.md). A call
// with wrong results counts as a fault of its kernel; where another kernel has run it on copies, the caller gets
// what that one computed.
//
//   for (const yard::CanaryMismatch& m : runtime.canaries().mismatches)
//     std::printf("%s %s: %s\n", m.op.c_str(), m.kernel.c_str(), to_string(m).c_str());
#pragma once

#include <yard/config.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace yard {

// A call with wrong results.
struct CanaryMismatch {
  std::string op, kernel;
  std::string against;  // the kernel that is right; empty where outputs were only to be finite
  std::string call;     // a CallSpec
  std::string worst;    // "out[3,17]"
  double found = 0;     // what the kernel had there ...
  double expected = 0;  // ... and what the other one had
  double error = 0;     // in units of the tolerance; infinite where no number says how wrong it is
  std::chrono::system_clock::time_point when;
  std::string dump;  // the file that has its inputs, once that is written; empty: none
};
// "out[3,17] is 0.5 where reference.cpp has 0.25 (12.5 times the tolerance)".
YARD_API std::string to_string(const CanaryMismatch& mismatch);

// One kernel under one check.
struct CanaryCount {
  std::string op, kernel;
  CanaryCheck check = CanaryCheck::kValues;
  uint64_t calls = 0;    // that could have been looked at
  uint64_t checked = 0;  // that were
  uint64_t mismatches = 0;
  uint64_t skipped = 0;     // it was their turn, and they could not be judged
  std::string why_skipped;  // the first of them
};

struct CanaryReport {
  std::vector<CanaryCount> kernels;        // by op and kernel
  std::vector<CanaryMismatch> mismatches;  // the last 64, oldest first
};

}  // namespace yard
