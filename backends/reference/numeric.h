// SPDX-License-Identifier: Apache-2.0
// The element types of the reference kernels. Kernels compute in double, and round once to the
// element type when they store a value.
//
// A double is rounded to nearest, ties to even. Going through float first would round twice. A NaN
// stays a NaN (quiet, with its sign and leading payload bits), values that are too large become
// infinity, and subnormals are exact. f16 is IEEE binary16; bf16 has the exponent of f32.
#pragma once

#include <yard/plugin.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace yard::reference {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// Returns the nearest 16-bit pattern with this many exponent and mantissa bits.
template <int kExponent, int kMantissa>
constexpr uint16_t narrow(double value) noexcept {
  static_assert(1 + kExponent + kMantissa == 16);
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint64_t kInfinity = ((uint64_t{1} << kExponent) - 1) << kMantissa;
  constexpr uint64_t kDoubleInfinity = uint64_t{0x7ff} << 52;
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits >> 63 << 15;
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  const uint64_t significand = (magnitude & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);

  uint64_t result = 0;
  if (magnitude > kDoubleInfinity) {
    // Set the quiet bit, or a NaN with a payload only in the lost bits would become infinity.
    const uint64_t payload = (magnitude >> (52 - kMantissa)) & ((uint64_t{1} << kMantissa) - 1);
    result = kInfinity | (uint64_t{1} << (kMantissa - 1)) | payload;
  } else if (exponent > kBias) {
    result = kInfinity;
  } else {
    // Subnormal numbers are evenly spaced, so more bits are dropped.
    const bool subnormal = exponent < 1 - kBias;
    const int drop = 52 - kMantissa + (subnormal ? 1 - kBias - exponent : 0);
    if (drop < 54) {
      const uint64_t rest = significand & ((uint64_t{1} << drop) - 1);
      const uint64_t half = uint64_t{1} << (drop - 1);
      result = significand >> drop;
      if (rest > half || (rest == half && (result & 1) != 0)) ++result;
      // The leading one adds itself to the exponent field, and so does a carry out of the mantissa.
      // From the largest number, the carry correctly gives infinity.
      if (!subnormal) result += static_cast<uint64_t>(exponent + kBias - 1) << kMantissa;
    }
  }
  return static_cast<uint16_t>(sign | result);
}

// Returns the exact value of a 16-bit pattern.
template <int kExponent, int kMantissa>
constexpr double widen(uint16_t pattern) noexcept {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint64_t kTop = (uint64_t{1} << kExponent) - 1;
  const uint64_t sign = static_cast<uint64_t>(pattern >> 15) << 63;
  const uint64_t exponent = (pattern >> kMantissa) & kTop;
  const uint64_t mantissa = pattern & ((uint64_t{1} << kMantissa) - 1);
  if (exponent == 0) {
    const auto unit = std::bit_cast<double>(static_cast<uint64_t>(1024 - kBias - kMantissa) << 52);
    const double value = static_cast<double>(mantissa) * unit;
    return sign != 0 ? -value : value;
  }
  const uint64_t wide = exponent == kTop ? 0x7ff : exponent + 1023 - kBias;
  return std::bit_cast<double>(sign | (wide << 52) | (mantissa << (52 - kMantissa)));
}

constexpr double to_double(float v) noexcept { return v; }
constexpr double to_double(F16 v) noexcept { return widen<5, 10>(v.bits); }
constexpr double to_double(BF16 v) noexcept { return widen<8, 7>(v.bits); }
constexpr double to_double(int8_t v) noexcept { return v; }

template <class T>
constexpr T from_double(double v) noexcept {
  if constexpr (std::is_same_v<T, F16>)
    return F16{narrow<5, 10>(v)};
  else if constexpr (std::is_same_v<T, BF16>)
    return BF16{narrow<8, 7>(v)};
  else
    return static_cast<T>(v);
}

// Runs body(std::type_identity<T>()) for the dtype's element type. `body` returns a yard_code_t.
template <class Body>
int32_t with_type(plugin::Call call, uint32_t dtype, const Body& body) {
  switch (dtype) {
    case YARD_F32: return body(std::type_identity<float>());
    case YARD_F16: return body(std::type_identity<F16>());
    case YARD_BF16: return body(std::type_identity<BF16>());
    default: return call.fail(YARD_DECLINED, "no reference for dtype number %u", unsigned{dtype});
  }
}

}  // namespace yard::reference
