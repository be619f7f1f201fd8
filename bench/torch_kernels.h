// SPDX-License-Identifier: Apache-2.0
// Computes the built-in ops with compositions of PyTorch's ops, for comparison.
#pragma once

#include "kernel_cases.h"

namespace yard::bench {

// Returns an empty list if PyTorch is not installed.
std::vector<Way> torch_ways(const KernelCase& c);

}  // namespace yard::bench
