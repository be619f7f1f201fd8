// SPDX-License-Identifier: Apache-2.0
// Reads and writes single elements as f32, for work per row or per result. Narrowing rounds to
// nearest, ties to even. Values that are too large become infinity, and a NaN stays a NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "rows.h"

namespace yard::simd {

// Data need not be aligned to its elements.
template <class T>
inline T read(const void* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

inline float widen(float v) noexcept { return v; }
inline float widen(BF16 v) noexcept { return std::bit_cast<float>(uint32_t{v.bits} << 16); }
inline float widen(F16 v) noexcept {
  const uint32_t sign = (v.bits & 0x8000u) << 16, magnitude = (v.bits & 0x7fffu) << 13;
  // The exponent is off by 112. A multiplication corrects it and is exact for subnormals too.
  const uint32_t wide = magnitude < 0x0f800000u
                            ? std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f)
                            : magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | wide);
}

template <class T>
inline T narrow(float v) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(v), magnitude = bits & 0x7fffffffu;
  const bool is_nan = magnitude > 0x7f800000u;
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else if constexpr (std::is_same_v<T, BF16>) {
    const uint32_t rounded = is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
    return {static_cast<uint16_t>(rounded >> 16)};
  } else {
    const uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t half;
    if (is_nan) {
      half = 0x7e00u;
    } else if (magnitude >= 0x47800000u) {  // 65536
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding a half drops the excess bits
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    }
    return {static_cast<uint16_t>(sign | half)};
  }
}

inline float read_as_float(const char* p, uint32_t dtype) noexcept {
  switch (dtype) {
    case YARD_F16: return widen(read<F16>(p));
    case YARD_BF16: return widen(read<BF16>(p));
    default: return read<float>(p);
  }
}
inline void write_float(char* p, uint32_t dtype, float v) noexcept {
  const auto put = [p](auto element) { std::memcpy(p, &element, sizeof element); };
  switch (dtype) {
    case YARD_F16: return put(narrow<F16>(v));
    case YARD_BF16: return put(narrow<BF16>(v));
    default: return put(v);
  }
}
inline void write_index(char* p, bool wide, int64_t index) noexcept {
  const auto put = [p](auto element) { std::memcpy(p, &element, sizeof element); };
  wide ? put(index) : put(static_cast<int32_t>(index));
}

}  // namespace yard::simd
