// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as numbers, and numbers that only look random.
#pragma once

#include <yard/tensor.h>

#include <cstdint>

namespace yard::tune {

// Bytes one element takes in memory; types of less than a byte take one.
size_t element_size(DType t) noexcept;
bool is_float(DType t) noexcept;
bool is_signed(DType t) noexcept;

// An element as a number. Integers beyond 2^53 lose digits.
double load(DType t, const void* at) noexcept;
// Rounds to nearest, ties to even; beyond a float type's range it is infinity (or NaN without one).
void store(DType t, void* at, double value) noexcept;

// splitmix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t bits() noexcept {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double unit() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // In [0, n); 0 when n is 0.
  uint64_t below(uint64_t n) noexcept { return n == 0 ? 0 : bits() % n; }

 private:
  uint64_t state_;
};

}  // namespace yard::tune
