// SPDX-License-Identifier: Apache-2.0
// Dtypes as numbers: elements in host memory, and which dtype has the values of another.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <cstdint>
#include <vector>

namespace yard::op {

// An element as a number. Integers beyond 2^53 lose digits.
double load(DType t, const void* at) noexcept;
// Rounds to nearest, ties to even. Out of a float type's range: infinity, or NaN where the type has no infinity.
void store(DType t, void* at, double value) noexcept;

// Whether the host can copy elements of the dtype one by one.
bool is_copyable(DType dtype) noexcept;
// A dtype's bit in a mask of dtypes; the mask of a list.
constexpr uint64_t bit_of(DType t) noexcept { return YARD_DTYPE_BIT(static_cast<int>(t)); }
inline uint64_t mask_of(const std::vector<DType>& dtypes) noexcept {
  uint64_t mask = 0;
  for (const DType t : dtypes) mask |= bit_of(t);
  return mask;
}
// The narrowest dtype of the mask that has all values of `dtype`; invalid: none.
DType narrowest_for(DType dtype, uint64_t mask) noexcept;
// The dtypes for which there is one.
uint64_t convertible_to(uint64_t mask) noexcept;

}  // namespace yard::op
