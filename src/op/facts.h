// SPDX-License-Identifier: Apache-2.0
// Computes the facts word of a tensor (plugin.h), which dispatch reads.
#pragma once

#include <yard/plugin.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace yard::op {

// Returns the tensors of an argument: none, one or many.
inline std::span<const yard_tensor_t* const> tensors_of(const yard_value_t& v) noexcept {
  if (v.tag == YARD_TAG_TENSOR) return {&v.u.tensor, 1};
  if (v.tag == YARD_TAG_LIST) return {v.u.list, v.count};
  return {};
}

// The dtype of TensorView::too_short(). The origin of such a view is its number of elements.
inline constexpr yard_dtype_t kTooShort = {0x7f, 0, 0};

// Whether a tensor's sizes and strides consist of whole blocks.
inline bool has_whole_units(const yard_tensor_t* t) noexcept {
  const int64_t unit = yard_unit_elements(t->dtype);
  const int inner = t->ndim - 1;
  if (unit == 1) return true;
  if (t->ndim < 1 || t->shape[inner] % unit != 0) return false;
  if (t->strides == nullptr) return true;
  for (int i = 0; i < inner; ++i)
    if (t->strides[i] % unit != 0) return false;
  return t->strides[inner] == 1;
}

// Facts from strides and sizes. read() returns false if a size is negative or something overflows.
struct StrideFacts {
  bool compact = true, plain = true, empty = false;
  int64_t extent = 1;  // elements from the first to the last, if `plain`

  bool read(const yard_tensor_t* t) noexcept {
    if ((t->ndim == 2 || t->ndim == 1) &&
        t->strides != nullptr) {  // most tensors; small numbers cannot overflow
      const int inner = t->ndim - 1;
      const int64_t rows = inner != 0 ? t->shape[0] : 1, by = inner != 0 ? t->strides[0] : 0;
      const int64_t row = t->shape[inner], in = t->strides[inner];
      if ((static_cast<uint64_t>(rows | row | by | in) >> 31) == 0) {
        empty = rows == 0 || row == 0;
        compact = (row <= 1 || in == 1) && (rows <= 1 || by == row);
        if (row > 1) plain = in >= 1, extent += (row - 1) * in;
        if (rows > 1) plain = plain && by >= extent, extent += (rows - 1) * by;
        return true;
      }
    }
    int64_t expected = 1;
    for (int i = t->ndim - 1; i >= 0; --i) {
      const int64_t n = t->shape[i];
      const int64_t stride = t->strides != nullptr ? t->strides[i] : expected;
      if (n < 0) return false;
      if (n == 0) empty = true;
      if (n > 1) {
        int64_t reach;
        if (stride != expected) compact = false;
        // Plain: each dimension steps over everything the inner ones reach, so no two indices meet.
        if (stride < extent) plain = false;
        if (stride > 0 && (__builtin_mul_overflow(n - 1, stride, &reach) ||
                           __builtin_add_overflow(extent, reach, &extent)))
          return false;
      }
      if (__builtin_mul_overflow(expected, n > 0 ? n : 1, &expected)) return false;
    }
    return true;
  }
};

// Returns the facts word, or 0 if host and kernels could not read the tensor (unknown dtype, rank
// above YARD_MAX_RANK, missing shape, negative size, device out of range, size overflow, parts of
// blocks).
inline uint64_t facts_of(const yard_tensor_t* t) noexcept {
  const uint32_t dtype = yard_dtype_index(t->dtype);
  const auto type = static_cast<uint64_t>(t->device.type),
             index = static_cast<uint64_t>(t->device.index);
  if (dtype == 0 || t->ndim < 0 || t->ndim > YARD_MAX_RANK || type - 1 >= 31 || index > 255 ||
      (t->ndim > 0 && t->shape == nullptr))
    return 0;
  if (yard_is_blocks(t->dtype) && !has_whole_units(t)) return 0;
  StrideFacts layout;
  if (!layout.read(t)) return 0;
  if (layout.empty) layout.compact = layout.plain = true;
  uint64_t facts = YARD_FACTS_VALID | dtype | type << 6 | index << 11 |
                   static_cast<uint64_t>(t->ndim) << YARD_FACTS_RANK_SHIFT;
  if (layout.compact) facts |= YARD_FACTS_COMPACT;
  if (layout.compact || t->ndim == 0 || t->shape[t->ndim - 1] <= 1 || t->strides[t->ndim - 1] == 1)
    facts |= YARD_FACTS_INNER_DENSE;
  if (layout.plain) facts |= YARD_FACTS_PLAIN;
  const uint64_t address = reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
  facts |= static_cast<uint64_t>(__builtin_ctzll(address | YARD_MAX_ALIGN))
           << YARD_FACTS_ALIGN_SHIFT;
  uint64_t span = YARD_FACTS_SPAN_UNKNOWN;
  if (layout.empty) {
    span = 0;
  } else if (const auto extent = static_cast<uint64_t>(layout.extent);
             layout.plain && extent < uint64_t{1} << 37) {
    const uint64_t bytes = extent / static_cast<uint64_t>(yard_unit_elements(t->dtype)) *
                           static_cast<uint64_t>(yard_unit_bytes(t->dtype));
    span = std::min<uint64_t>((bytes + 63) / 64, YARD_FACTS_SPAN_UNKNOWN);
  }
  return facts | span << YARD_FACTS_SPAN_SHIFT;
}

}  // namespace yard::op
