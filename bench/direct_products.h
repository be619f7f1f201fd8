// SPDX-License-Identifier: Apache-2.0
// Products of matrices by libraries that the backends use, called without Switchyard.
#pragma once

#include "kernel_cases.h"

namespace yard::bench {

// Of `linear`: oneDNN and OpenBLAS, on all cores, where there is one that has the dtype. Empty for other ops.
std::vector<Way> direct_ways(const KernelCase& c);

}  // namespace yard::bench
