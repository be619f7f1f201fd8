// SPDX-License-Identifier: Apache-2.0
#include "tune/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace yard::tune {
namespace {

// A binary float that fits 16 bits. `has_inf` is false where the top exponent holds numbers and only
// all ones is NaN (f8e4m3).
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_inf;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  uint32_t nan() const { return has_inf ? infinity() | (1u << (mantissa_bits - 1)) : sign() - 1; }
  uint32_t largest() const { return has_inf ? infinity() - 1 : nan() - 1; }
};
constexpr Format kF16{5, 10, true}, kBF16{8, 7, true}, kF8E4M3{4, 3, false}, kF8E5M2{5, 2, true};

double decode(const Format& f, uint32_t bits) {
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

uint32_t encode(const Format& f, double v) {
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
T read(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

template <class T>
void write(void* at, double value) {
  const T v = static_cast<T>(value);
  std::memcpy(at, &v, sizeof v);
}

void write_bits(void* at, uint32_t bits, size_t size) { std::memcpy(at, &bits, size); }

int64_t last_stride(const TensorView& v) noexcept {  // of blocks: 1
  return v.rank() > 0 ? v.strides()[static_cast<size_t>(v.rank()) - 1] : 1;
}

char* element(const TensorView& v, int64_t offset) noexcept {
  return static_cast<char*>(v.data()) + offset * static_cast<int64_t>(element_size(v.dtype()));
}

// Calls f(address, bytes) for all elements in order: once per row where a row is contiguous.
template <class F>
void for_each_run(const TensorView& v, const F& f) {
  const size_t size = element_size(v.dtype());
  const int64_t step = last_stride(v);
  for_each_row(v, [&](const auto&, int64_t offset, int64_t width) {
    if (step == 1) return f(element(v, offset), static_cast<size_t>(width) * size), true;
    for (int64_t i = 0; i < width; ++i) f(element(v, offset + i * step), size);
    return true;
  });
}

// Infinity and NaN have all bits of `mask` set; f8e4m3 has no infinity, and its NaN has all seven.
template <class Bits>
bool rows_are_finite(const TensorView& v, Bits mask) {
  const int64_t step = last_stride(v);
  bool finite = true;
  for_each_row(v, [&](const auto&, int64_t offset, int64_t width) {
    const char* const row = element(v, offset);
    unsigned bad = 0;
    for (int64_t i = 0; i < width; ++i) {
      Bits bits;
      std::memcpy(&bits, row + i * step * static_cast<int64_t>(sizeof bits), sizeof bits);
      bad |= (bits & mask) == mask ? 1u : 0u;
    }
    finite = bad == 0;
    return finite;
  });
  return finite;
}

}  // namespace

size_t element_size(DType t) noexcept {
  return block_elements(t) > 1 ? 1 : static_cast<size_t>((bits(t) + 7) / 8);
}

bool is_float(DType t) noexcept {
  switch (t) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f64:
    case DType::f8e4m3:
    case DType::f8e5m2: return true;
    default: return false;
  }
}

bool is_signed(DType t) noexcept {
  return t == DType::i8 || t == DType::i16 || t == DType::i32 || t == DType::i64 || t == DType::i4;
}

double load(DType t, const void* at) noexcept {
  switch (t) {
    case DType::f32: return static_cast<double>(read<float>(at));
    case DType::f64: return read<double>(at);
    case DType::f16: return decode(kF16, read<uint16_t>(at));
    case DType::bf16: return decode(kBF16, read<uint16_t>(at));
    case DType::f8e4m3: return decode(kF8E4M3, read<uint8_t>(at));
    case DType::f8e5m2: return decode(kF8E5M2, read<uint8_t>(at));
    case DType::i16: return read<int16_t>(at);
    case DType::i32: return read<int32_t>(at);
    case DType::i64: return static_cast<double>(read<int64_t>(at));
    case DType::u16: return read<uint16_t>(at);
    case DType::u32: return read<uint32_t>(at);
    case DType::u64: return static_cast<double>(read<uint64_t>(at));
    case DType::i8:
    case DType::i4: return read<int8_t>(at);
    default: return read<uint8_t>(at);
  }
}

void store(DType t, void* at, double value) noexcept {
  switch (t) {
    case DType::f32: return write<float>(at, value);
    case DType::f64: return write<double>(at, value);
    case DType::f16: return write_bits(at, encode(kF16, value), 2);
    case DType::bf16: return write_bits(at, encode(kBF16, value), 2);
    case DType::f8e4m3: return write_bits(at, encode(kF8E4M3, value), 1);
    case DType::f8e5m2: return write_bits(at, encode(kF8E5M2, value), 1);
    case DType::i16: return write<int16_t>(at, value);
    case DType::i32: return write<int32_t>(at, value);
    case DType::i64: return write<int64_t>(at, value);
    case DType::u16: return write<uint16_t>(at, value);
    case DType::u32: return write<uint32_t>(at, value);
    case DType::u64: return write<uint64_t>(at, value);
    case DType::i8:
    case DType::i4: return write<int8_t>(at, value);
    default: return write<uint8_t>(at, value);
  }
}

std::string format_element(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.9g}", v); }

void copy_elements(const TensorView& from, const TensorView& to) {
  const char* const source = static_cast<const char*>(from.data());
  char* const target = static_cast<char*>(to.data());
  for_each_run(from, [&](const char* at, size_t n) { std::memcpy(target + (at - source), at, n); });
}

uint64_t packed_bytes(const TensorView& v) noexcept {
  return static_cast<uint64_t>(element_view(v).numel()) * element_size(v.dtype());
}

std::string packed_elements(const TensorView& from) {
  std::string to;
  to.reserve(packed_bytes(from));
  for_each_run(from, [&](const char* at, size_t n) { to.append(at, n); });
  return to;
}

void unpack_elements(std::string_view bytes, const TensorView& to) {
  const char* from = bytes.data();
  for_each_run(to, [&](char* at, size_t n) {
    std::memcpy(at, from, n);
    from += n;
  });
}

bool all_finite(const TensorView& v) {
  switch (v.dtype()) {
    case DType::f32: return rows_are_finite<uint32_t>(v, 0x7f800000u);
    case DType::f16: return rows_are_finite<uint16_t>(v, 0x7c00u);
    case DType::bf16: return rows_are_finite<uint16_t>(v, 0x7f80u);
    case DType::f64: return rows_are_finite<uint64_t>(v, 0x7ff0000000000000ull);
    case DType::f8e4m3: return rows_are_finite<uint8_t>(v, 0x7fu);
    case DType::f8e5m2: return rows_are_finite<uint8_t>(v, 0x7cu);
    default: return true;
  }
}

NotFinite first_not_finite(const TensorView& v) {
  NotFinite to;
  const int64_t step = last_stride(v);
  for_each_row(v, [&](const std::vector<int64_t>& index, int64_t offset, int64_t width) {
    for (int64_t i = 0; i < width; ++i) {
      to.value = load(v.dtype(), element(v, offset + i * step));
      if (std::isfinite(to.value)) continue;
      to.index = index;
      if (!to.index.empty()) to.index.back() = i;
      return false;
    }
    return true;
  });
  return to;
}

}  // namespace yard::tune
