// SPDX-License-Identifier: Apache-2.0
// Tests of the kernels of one op on generated calls: conformance with the reference kernel (verify() of yard/verify.h),
// and a smoke test that ignores results.
#pragma once

#include <yard/verify.h>

#include <functional>
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

// Runs each kernel on a few small calls to see whether it crashes or writes where it must not. Kernels may fail and decline.
// Calls that the reference kernel rejects as invalid are skipped. Ends with the first kernel that did damage, which is
// its failure. Uses the seed and `watch` of the options.
std::vector<KernelReport> run_smoke_test(const OpUnderTest& op, const VerifyOptions& options);

}  // namespace yard::verification
