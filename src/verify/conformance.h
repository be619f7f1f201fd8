// SPDX-License-Identifier: Apache-2.0
// Tests of the kernels of one op on generated calls: conformance with the reference kernel (verify() of yard/verify.h),
// and a smoke test that ignores results.
#pragma once

#include <yard/verify.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "verify/kernel_runner.h"

namespace yard::verification {

// Called before each case with the number of cases done, planned and failed; false ends the run.
using Step = std::function<bool(size_t done, size_t planned, size_t failed)>;

// One report for each kernel under test. `used` has an element for each expectation of the options; those that matched
// a call are set. `finished` is false if `step` ended the run.
std::vector<KernelReport> check_conformance(const OpUnderTest& op, const VerifyOptions& options,
                                            const Step& step, std::vector<bool>& used,
                                            bool* finished);

struct SmokeTestOptions {
  size_t cases = 4;  // accepted by each kernel
  int64_t max_elements = 2048;
  uint64_t seed = 1;
  // Called before each run.
  std::function<void(std::string_view kernel, const VerifyCase&)> watch;
};

struct SmokeTestReport {
  size_t kernels = 0, runs = 0;
  std::string damage;  // memory that the last kernel changed and must not; empty: none
};

// Runs each kernel on a few calls to see whether it crashes or writes where it must not. Kernels may fail and decline.
// Calls that the reference kernel rejects as invalid are skipped.
SmokeTestReport run_smoke_test(const OpUnderTest& op, const SmokeTestOptions& options);

}  // namespace yard::verification
