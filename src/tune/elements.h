// SPDX-License-Identifier: Apache-2.0
// Elements of tensors in host memory: as numbers, one by one, row by row, packed into bytes. A block-quantised tensor has
// its bytes for elements.
#pragma once

#include <yard/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "op/numbers.h"
#include "op/overlap.h"

namespace yard::tune {

// Bytes of one element in memory; types of less than a byte take one.
size_t element_size(DType t) noexcept;
// The tensor that has these elements.
inline TensorView element_view(const TensorView& v) noexcept {
  return yard_is_blocks(v.c().dtype) ? op::ByteTensor::bytes_of(v.c()) : v;
}
bool is_float(DType t) noexcept;
bool is_signed(DType t) noexcept;

using op::load;
using op::store;
// For messages: up to nine digits, and NaN without its sign.
std::string format_element(double value);

// Calls f(index, offset in elements, width) for every row along the last dimension, in index order. The last component
// of the index is 0; a tensor without dimensions is one row of one element. Stops when f returns false.
template <class F>
void for_each_row(const TensorView& of, const F& f) {
  const TensorView v = element_view(of);
  if (v.numel() == 0) return;
  const auto rank = static_cast<size_t>(v.rank());
  const int64_t width = rank > 0 ? v.shape()[rank - 1] : 1;
  std::vector<int64_t> index(rank, 0);
  for (int64_t rows = v.numel() / width; rows > 0; --rows) {
    int64_t offset = 0;
    for (size_t i = 0; i + 1 < rank; ++i) offset += index[i] * v.strides()[i];
    if (!f(index, offset, width)) return;
    for (size_t i = rank > 0 ? rank - 1 : 0; i-- > 0;) {
      if (++index[i] < v.shape()[i]) break;
      index[i] = 0;
    }
  }
}

// Calls f(pointer) for every element, in index order.
template <class F>
void for_each_element(const TensorView& of, const F& f) {
  const TensorView v = element_view(of);
  const auto size = static_cast<int64_t>(element_size(v.dtype()));
  const auto rank = static_cast<size_t>(v.rank());
  const int64_t step = rank > 0 ? v.strides()[rank - 1] * size : 0;
  for_each_row(v, [&](const auto&, int64_t offset, int64_t width) {
    char* at = static_cast<char*>(v.data()) + offset * size;
    for (int64_t i = 0; i < width; ++i) f(at + i * step);
    return true;
  });
}

// Both tensors have the same dtype, shape and strides.
void copy_elements(const TensorView& from, const TensorView& to);
// In index order, without gaps; and back. `bytes` must have exactly packed_bytes(to) bytes.
std::string packed_elements(const TensorView& from);
void unpack_elements(std::string_view bytes, const TensorView& to);
uint64_t packed_bytes(const TensorView& v) noexcept;

// Whether every element of a float tensor is finite; true for other dtypes.
bool all_finite(const TensorView& v);
// The first element that is not finite. There must be one.
struct NotFinite {
  std::vector<int64_t> index;
  double value = 0;
};
NotFinite first_not_finite(const TensorView& v);

}  // namespace yard::tune
