// SPDX-License-Identifier: Apache-2.0
// The parts of torch_ways(), by kind of op.
#pragma once

#include <ATen/ATen.h>

#include "kernel_cases.h"

namespace yard::bench {

// Each function returns an empty list for other ops.
std::vector<Way> torch_row_ways(const KernelCase& c, at::ScalarType type);    // norms, activations
std::vector<Way> torch_table_ways(const KernelCase& c, at::ScalarType type);  // tables, choices
std::vector<Way> torch_product_ways(const KernelCase& c, at::ScalarType type);  // linear, attention

}  // namespace yard::bench
