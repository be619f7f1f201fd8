// SPDX-License-Identifier: Apache-2.0
// Speed does not matter here, so each element's address is computed from its number.
#include "elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace yard::fault {
namespace {

size_t item_size(plugin::Tensor t) {
  const int bits = t.c()->dtype.bits;
  return bits < 8 ? 1 : static_cast<size_t>(bits) / 8;
}

char* address(plugin::Tensor t, int64_t number) {
  int64_t offset = 0;
  for (int axis = t.rank() - 1; axis >= 0; --axis) {
    offset += number % t.size(axis) * t.stride(axis);
    number /= t.size(axis);
  }
  return t.data<char>() + offset * static_cast<int64_t>(item_size(t));
}

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Decodes f16 by its definition: a sign and a number of units. The unit is 2^-24 and doubles with
// each step of the exponent past the first.
double from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  double value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 0x1f) value = mantissa == 0 ? HUGE_VAL : NAN;
  return bits & 0x8000 ? -value : value;
}
uint16_t to_f16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return 0x7e00;
  if (std::abs(value) >= 65520) return sign | 0x7c00;
  if (value == 0) return sign;
  const int step = std::max(std::ilogb(value), -14) - 10;  // log2 of the unit here
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), -step)));
  return static_cast<uint16_t>(sign | (units + ((step + 24) << 10)));
}

// bf16 is the upper half of an f32. Conversion rounds the lower half to nearest, ties to even.
double from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t to_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Replaces the element by f(element). 64-bit integers pass through double.
template <class F>
void change(plugin::Tensor t, char* at, const F& f) {
  const auto number = [&]<class T>(T old) {
    store(at, static_cast<T>(f(static_cast<double>(old))));
  };
  switch (t.dtype()) {
    case YARD_F32: return number(load<float>(at));
    case YARD_F64: return number(load<double>(at));
    case YARD_F16: return store(at, to_f16(f(from_f16(load<uint16_t>(at)))));
    case YARD_BF16: return store(at, to_bf16(f(from_bf16(load<uint16_t>(at)))));
    case YARD_I16: return number(load<int16_t>(at));
    case YARD_I32: return number(load<int32_t>(at));
    case YARD_I64: return number(load<int64_t>(at));
    case YARD_U16: return number(load<uint16_t>(at));
    case YARD_U32: return number(load<uint32_t>(at));
    case YARD_U64: return number(load<uint64_t>(at));
    case YARD_BOOL: return store(at, static_cast<uint8_t>(f(load<uint8_t>(at)) != 0));
    case YARD_I8: return number(load<int8_t>(at));
    default: return number(load<uint8_t>(at));
  }
}

}  // namespace

void fill(plugin::Tensor t, double value) {
  for (int64_t n = 0; n < t.numel(); ++n) change(t, address(t, n), [&](double) { return value; });
}

void add(plugin::Tensor t, double offset) {
  for (int64_t n = 0; n < t.numel(); ++n)
    change(t, address(t, n), [&](double old) { return old + offset; });
}

void scribble_half(plugin::Tensor t, uint8_t byte) {
  for (int64_t n = 0; n < (t.numel() + 1) / 2; ++n) std::memset(address(t, n), byte, item_size(t));
}

}  // namespace yard::fault
