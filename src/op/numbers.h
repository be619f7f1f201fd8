// SPDX-License-Identifier: Apache-2.0
// Elements in host memory as numbers.
#pragma once

#include <yard/tensor.h>

namespace yard::op {

// An element as a number. Integers beyond 2^53 lose digits.
double load(DType t, const void* at) noexcept;
// Rounds to nearest, ties to even. Out of a float type's range: infinity, or NaN where the type has no infinity.
void store(DType t, void* at, double value) noexcept;

}  // namespace yard::op
