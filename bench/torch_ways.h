// SPDX-License-Identifier: Apache-2.0
// Parts of torch_ways(), by kinds of ops.
#pragma once

#include <ATen/ATen.h>

#include "kernel_cases.h"

namespace yard::bench {

// Empty for other ops.
std::vector<Way> torch_row_ways(const KernelCase& c, at::ScalarType type);    // norms, activations
std::vector<Way> torch_table_ways(const KernelCase& c, at::ScalarType type);  // tables, choices
std::vector<Way> torch_product_ways(const KernelCase& c, at::ScalarType type);  // linear, attention

}  // namespace yard::bench
