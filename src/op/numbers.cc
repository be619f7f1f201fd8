// SPDX-License-Identifier: Apache-2.0
#include "op/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/lists.h"

namespace yard::op {
namespace {

// A binary float of at most 16 bits. Without `has_inf`, the top exponent also holds numbers, and
// only the pattern of all ones is NaN (f8e4m3).
struct SmallFloat {
  int exponent_bits, mantissa_bits;
  bool has_inf;
  size_t size() const { return exponent_bits + mantissa_bits < 8 ? 1 : 2; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  uint32_t nan() const { return has_inf ? infinity() | (1u << (mantissa_bits - 1)) : sign() - 1; }
  uint32_t largest() const { return has_inf ? infinity() - 1 : nan() - 1; }
};

double decode(const SmallFloat& f, uint32_t bits) {
  const double sign = (bits & f.sign()) != 0 ? -1 : 1;
  bits &= f.sign() - 1;
  if (f.has_inf ? bits > f.infinity() : bits == f.nan())
    return std::numeric_limits<double>::quiet_NaN();
  if (f.has_inf && bits == f.infinity()) return sign * std::numeric_limits<double>::infinity();
  const int exponent = static_cast<int>(bits >> f.mantissa_bits);
  const auto fraction = static_cast<double>(bits & ((1u << f.mantissa_bits) - 1));
  const double one = std::ldexp(1.0, f.mantissa_bits);
  return sign * std::ldexp(exponent == 0 ? fraction : one + fraction,
                           (exponent == 0 ? 1 : exponent) - f.bias() - f.mantissa_bits);
}

uint32_t encode(const SmallFloat& f, double v) {
  if (std::isnan(v)) return f.nan();
  const uint32_t sign = std::signbit(v) ? f.sign() : 0;
  const double magnitude = std::fabs(v);
  const uint32_t beyond = f.has_inf ? f.infinity() : f.nan();
  if (std::isinf(v)) return sign | beyond;
  if (magnitude == 0) return sign;
  // `units` counts units of the last place. Subnormals have the smallest exponent, too.
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  // A carry out of the mantissa correctly increments the exponent.
  const auto bits = static_cast<uint32_t>(units) +
                    (static_cast<uint32_t>(exponent + f.bias() - 1) << f.mantissa_bits);
  return sign | (bits > f.largest() ? beyond : bits);
}

// Calls f with a number of the dtype's element type, or with its SmallFloat.
template <class F>
auto with_type(DType t, const F& f) noexcept {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::f16: return f(SmallFloat{5, 10, true});
    case DType::bf16: return f(SmallFloat{8, 7, true});
    case DType::f8e4m3: return f(SmallFloat{4, 3, false});
    case DType::f8e5m2: return f(SmallFloat{5, 2, true});
    case DType::i8:
    case DType::i4: return f(int8_t{});
    case DType::i16: return f(int16_t{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::u16: return f(uint16_t{});
    case DType::u32: return f(uint32_t{});
    case DType::u64: return f(uint64_t{});
    default: return f(uint8_t{});
  }
}

constexpr DType kConvertible[] = {
    DType::f8e4m3, DType::f8e5m2, DType::f16, DType::bf16, DType::f32,
    DType::f64,    DType::i8,     DType::u8,  DType::i16,  DType::u16,
    DType::i32,    DType::u32,    DType::i64, DType::u64};  // narrow first

struct Range {
  bool is_float = false, is_signed = false;
  int digits = 0, max_exponent = 0;  // as in std::numeric_limits
};

Range range_of(DType t) noexcept {
  return with_type(t, [](auto type) -> Range {
    if constexpr (std::is_same_v<decltype(type), SmallFloat>) {
      return {true, true, type.mantissa_bits + 1, type.bias() + 1};
    } else {
      using Limits = std::numeric_limits<decltype(type)>;
      return {!Limits::is_integer, Limits::is_signed, Limits::digits, Limits::max_exponent};
    }
  });
}

// Whether `to` has all values of `from`.
bool has_all_values(const Range& to, const Range& from) noexcept {
  return to.is_float == from.is_float && to.is_signed >= from.is_signed &&
         to.digits >= from.digits && to.max_exponent >= from.max_exponent;
}

}  // namespace

double load(DType t, const void* at) noexcept {
  return with_type(t, [at](auto value) {
    if constexpr (std::is_same_v<decltype(value), SmallFloat>) {
      uint32_t bits = 0;
      std::memcpy(&bits, at, value.size());
      return decode(value, bits);
    } else {
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(value);
    }
  });
}

void store(DType t, void* at, double number) noexcept {
  with_type(t, [=](auto value) {
    if constexpr (std::is_same_v<decltype(value), SmallFloat>) {
      const uint32_t bits = encode(value, number);
      std::memcpy(at, &bits, value.size());
    } else {
      value = static_cast<decltype(value)>(number);
      std::memcpy(at, &value, sizeof value);
    }
  });
}

bool is_copyable(DType dtype) noexcept { return bits(dtype) != 0 && block_elements(dtype) == 1; }

DType narrowest_for(DType dtype, uint64_t mask) noexcept {
  if ((mask & bit_of(dtype)) != 0) return dtype;
  if (!base::contains(kConvertible, dtype)) return DType::invalid;
  for (const DType t : kConvertible)
    if ((mask & bit_of(t)) != 0 && has_all_values(range_of(t), range_of(dtype))) return t;
  return DType::invalid;
}

uint64_t convertible_to(uint64_t mask) noexcept {
  uint64_t to = 0;
  for (const DType t : kConvertible)
    if (narrowest_for(t, mask) != DType::invalid) to |= bit_of(t);
  return to;
}

}  // namespace yard::op
