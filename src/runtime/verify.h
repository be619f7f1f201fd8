// SPDX-License-Identifier: Apache-2.0
// Which kernels of a runtime are verified or probed.
#pragma once

#include <yard/verify.h>

#include <vector>

#include "dispatch/core.h"
#include "tune/conformance.h"

namespace yard::runtime {

// The kernels that the options name, op by op. `keep` is what those of `options.plugin` hold.
std::vector<tune::OpUnderTest> subjects(const detail::Snapshot& snapshot,
                                        const VerifyOptions& options, const yard_host_t* host,
                                        const void* keep = nullptr);

}  // namespace yard::runtime
