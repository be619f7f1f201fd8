// SPDX-License-Identifier: Apache-2.0
// Reads rows of f32 and bf16 as f32, and writes them back.
#pragma once

#include <yard/plugin.hpp>

#include <bit>
#include <cstdint>
#include <cstring>

namespace yard::openblas {

inline void to_float(const uint16_t* bf16, float* to, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(uint32_t{bf16[i]} << 16);
}

// Rounds to nearest, ties to even. A NaN stays a NaN.
inline void to_bf16(const float* from, uint16_t* to, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
  }
}

// Reads row r of a tensor as f32. The elements of the row must be adjacent.
inline void read_row(plugin::Tensor t, int64_t r, float* to) noexcept {
  const int64_t n = t.size(-1);
  if (t.dtype() == YARD_BF16)
    to_float(t.row<const uint16_t>(r), to, n);
  else
    std::memcpy(to, t.row<const float>(r), static_cast<size_t>(n) * sizeof *to);
}
inline void write_row(plugin::Tensor t, int64_t r, int64_t at, const float* from,
                      int64_t n) noexcept {
  if (t.dtype() == YARD_BF16)
    to_bf16(from, t.row<uint16_t>(r) + at, n);
  else
    std::memcpy(t.row<float>(r) + at, from, static_cast<size_t>(n) * sizeof *from);
}

}  // namespace yard::openblas
