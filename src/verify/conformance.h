// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of one op on generated calls against the reference kernel, or for damage.
#pragma once

#include "verify/kernel_runner.h"

namespace yard::verification {

// Reports each kernel under test. Sets the elements of `used` whose expectations matched a call.
// Calls VerifyOptions::progress with `progress` and the numbers of this op added.
VerifyReport check_conformance(const OpUnderTest& op, const VerifyOptions& options,
                               std::vector<bool>& used, VerifyOptions::Progress progress = {});

// Runs each kernel on a few small calls to see whether it crashes or writes where it must not.
// Kernels may fail and decline. Ends with the first kernel that did damage.
std::vector<KernelReport> run_smoke_test(const OpUnderTest& op, const VerifyOptions& options);

}  // namespace yard::verification
