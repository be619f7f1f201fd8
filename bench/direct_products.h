// SPDX-License-Identifier: Apache-2.0
// Calls the libraries that backends use for matrix products directly, without Switchyard.
#pragma once

#include "kernel_cases.h"

namespace yard::bench {

// Returns the ways to compute `linear` with oneDNN and OpenBLAS on all cores, as far as they
// support the dtype. Returns an empty list for other ops.
std::vector<Way> direct_ways(const KernelCase& c);

}  // namespace yard::bench
