// SPDX-License-Identifier: Apache-2.0
// The built-in ops as compositions of PyTorch's own, to measure ours beside them.
#pragma once

#include "kernel_cases.h"

namespace yard::bench {

// Empty where PyTorch is not installed.
std::vector<Way> torch_ways(const KernelCase& c);

}  // namespace yard::bench
