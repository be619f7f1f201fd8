// SPDX-License-Identifier: Apache-2.0
#include "tune/elements.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace yard::tune {
namespace {

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
