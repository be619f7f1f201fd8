// SPDX-License-Identifier: Apache-2.0
// The calls of the built-in ops that kernels are measured on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yard::tool {

// In the order of the documentation.
const std::vector<std::string>& measured_ops();

// The call as text, with an output of `rows` rows of `hidden` elements. Rotary embeddings have
// heads of 128, a quarter as many for keys, and tables as long as there are rows.
std::string measured_call(const std::string& op, const std::string& dtype, int64_t rows,
                          int64_t hidden);

}  // namespace yard::tool
