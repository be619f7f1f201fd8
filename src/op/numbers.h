// SPDX-License-Identifier: Apache-2.0
// Reads elements in host memory as numbers, and says which dtype can hold the values of another.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <cstdint>
#include <vector>

namespace yard::op {

// Reads an element as a number. Integers beyond 2^53 lose digits.
double load(DType t, const void* at) noexcept;
// Rounds to nearest, ties to even. A number beyond the range of a float type becomes infinity, or
// NaN if the type has no infinity.
void store(DType t, void* at, double value) noexcept;

// Whether the host can copy elements of the dtype one by one.
bool is_copyable(DType dtype) noexcept;
constexpr uint64_t bit_of(DType t) noexcept { return YARD_DTYPE_BIT(static_cast<int>(t)); }
inline uint64_t mask_of(const std::vector<DType>& dtypes) noexcept {
  uint64_t mask = 0;
  for (const DType t : dtypes) mask |= bit_of(t);
  return mask;
}
// Returns the narrowest dtype of the mask that has all values of `dtype`, or DType::invalid.
DType narrowest_for(DType dtype, uint64_t mask) noexcept;
// Returns the dtypes for which narrowest_for() finds a dtype in the mask.
uint64_t convertible_to(uint64_t mask) noexcept;

}  // namespace yard::op
