// SPDX-License-Identifier: Apache-2.0
#include "op/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace yard::op {
namespace {

// A binary float that fits 16 bits. `has_inf` is false where the top exponent holds numbers and only
// all ones is NaN (f8e4m3).
struct SmallFloat {
  int exponent_bits, mantissa_bits;
  bool has_inf;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  uint32_t nan() const { return has_inf ? infinity() | (1u << (mantissa_bits - 1)) : sign() - 1; }
  uint32_t largest() const { return has_inf ? infinity() - 1 : nan() - 1; }
};
constexpr SmallFloat kF16{5, 10, true}, kBF16{8, 7, true}, kF8E4M3{4, 3, false},
    kF8E5M2{5, 2, true};

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
  // In units of the last place; the smallest exponent is shared with the subnormals.
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  // A carry out of the mantissa correctly increments the exponent.
  const auto bits = static_cast<uint32_t>(units) +
                    (static_cast<uint32_t>(exponent + f.bias() - 1) << f.mantissa_bits);
  return sign | (bits > f.largest() ? beyond : bits);
}

template <class T>
T read_bits(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

template <class T>
void write_number(void* at, double value) {
  const T v = static_cast<T>(value);
  std::memcpy(at, &v, sizeof v);
}

void write_bits(void* at, uint32_t bits, size_t size) { std::memcpy(at, &bits, size); }

struct Numbers {
  enum class Kind : uint8_t { kNone, kSigned, kUnsigned, kFloat } kind = Kind::kNone;
  int bits = 0;                     // of the whole
  int precision = 0, exponent = 0;  // of floats: bits of the significand and of the exponent
};

Numbers numbers_of(DType t) noexcept {
  using Kind = Numbers::Kind;
  switch (t) {
    case DType::f64: return {Kind::kFloat, 64, 53, 11};
    case DType::f32: return {Kind::kFloat, 32, 24, 8};
    case DType::f16: return {Kind::kFloat, 16, 11, 5};
    case DType::bf16: return {Kind::kFloat, 16, 8, 8};
    case DType::f8e4m3: return {Kind::kFloat, 8, 4, 4};
    case DType::f8e5m2: return {Kind::kFloat, 8, 3, 5};
    case DType::i8: return {Kind::kSigned, 8};
    case DType::i16: return {Kind::kSigned, 16};
    case DType::i32: return {Kind::kSigned, 32};
    case DType::i64: return {Kind::kSigned, 64};
    case DType::u8: return {Kind::kUnsigned, 8};
    case DType::u16: return {Kind::kUnsigned, 16};
    case DType::u32: return {Kind::kUnsigned, 32};
    case DType::u64: return {Kind::kUnsigned, 64};
    default: return {};
  }
}

// Whether `to` has all values of `from`.
bool has_all_values(const Numbers& to, const Numbers& from) noexcept {
  using Kind = Numbers::Kind;
  if (to.kind == Kind::kNone || from.kind == Kind::kNone) return false;
  if (to.kind == Kind::kFloat || from.kind == Kind::kFloat)
    return to.kind == from.kind && to.precision >= from.precision && to.exponent >= from.exponent;
  if (to.kind == from.kind) return to.bits >= from.bits;
  return to.kind == Kind::kSigned && to.bits > from.bits;
}

constexpr DType kConvertible[] = {
    DType::f8e4m3, DType::f8e5m2, DType::f16, DType::bf16, DType::f32,
    DType::f64,    DType::i8,     DType::u8,  DType::i16,  DType::u16,
    DType::i32,    DType::u32,    DType::i64, DType::u64};  // narrow first

}  // namespace

double load(DType t, const void* at) noexcept {
  switch (t) {
    case DType::f32: return static_cast<double>(read_bits<float>(at));
    case DType::f64: return read_bits<double>(at);
    case DType::f16: return decode(kF16, read_bits<uint16_t>(at));
    case DType::bf16: return decode(kBF16, read_bits<uint16_t>(at));
    case DType::f8e4m3: return decode(kF8E4M3, read_bits<uint8_t>(at));
    case DType::f8e5m2: return decode(kF8E5M2, read_bits<uint8_t>(at));
    case DType::i16: return read_bits<int16_t>(at);
    case DType::i32: return read_bits<int32_t>(at);
    case DType::i64: return static_cast<double>(read_bits<int64_t>(at));
    case DType::u16: return read_bits<uint16_t>(at);
    case DType::u32: return read_bits<uint32_t>(at);
    case DType::u64: return static_cast<double>(read_bits<uint64_t>(at));
    case DType::i8:
    case DType::i4: return read_bits<int8_t>(at);
    default: return read_bits<uint8_t>(at);
  }
}

void store(DType t, void* at, double value) noexcept {
  switch (t) {
    case DType::f32: return write_number<float>(at, value);
    case DType::f64: return write_number<double>(at, value);
    case DType::f16: return write_bits(at, encode(kF16, value), 2);
    case DType::bf16: return write_bits(at, encode(kBF16, value), 2);
    case DType::f8e4m3: return write_bits(at, encode(kF8E4M3, value), 1);
    case DType::f8e5m2: return write_bits(at, encode(kF8E5M2, value), 1);
    case DType::i16: return write_number<int16_t>(at, value);
    case DType::i32: return write_number<int32_t>(at, value);
    case DType::i64: return write_number<int64_t>(at, value);
    case DType::u16: return write_number<uint16_t>(at, value);
    case DType::u32: return write_number<uint32_t>(at, value);
    case DType::u64: return write_number<uint64_t>(at, value);
    case DType::i8:
    case DType::i4: return write_number<int8_t>(at, value);
    default: return write_number<uint8_t>(at, value);
  }
}

bool is_copyable(DType dtype) noexcept {
  return numbers_of(dtype).kind != Numbers::Kind::kNone || dtype == DType::boolean ||
         dtype == DType::i4 || dtype == DType::u4;
}

DType narrowest_for(DType dtype, uint64_t mask) noexcept {
  if ((mask & bit_of(dtype)) != 0) return dtype;
  for (const DType t : kConvertible)
    if ((mask & bit_of(t)) != 0 && has_all_values(numbers_of(t), numbers_of(dtype))) return t;
  return DType::invalid;
}

uint64_t convertible_to(uint64_t mask) noexcept {
  uint64_t to = 0;
  for (const DType t : kConvertible)
    if (narrowest_for(t, mask) != DType::invalid) to |= bit_of(t);
  return to;
}

}  // namespace yard::op
