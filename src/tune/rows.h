// SPDX-License-Identifier: Apache-2.0
// Tensors row by row, for whoever reads or copies many elements.
#pragma once

#include <yard/tensor.h>

#include <string>
#include <vector>

namespace yard::tune {

// Calls f(index, offset in elements, elements) for every row along the last dimension, in the order of indices. The
// last of the index is 0; a tensor without dimensions is one row of one. Ends when f returns false.
template <class F>
void for_each_row(const TensorView& v, const F& f) {
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

// From one to the other, of the same dtype, shape and strides.
void copy_elements(const TensorView& from, const TensorView& to);
// In the order of indices, without gaps; and back. `bytes` has exactly the size it must have.
std::string packed_elements(const TensorView& from);
void unpack_elements(std::string_view bytes, const TensorView& to);
uint64_t packed_bytes(const TensorView& v) noexcept;

// Whether every element of a tensor of floats is a finite number; true for other dtypes.
bool all_finite(const TensorView& v);
// The first element that is not.
struct NotFinite {
  std::vector<int64_t> index;
  double value = 0;
};
NotFinite first_not_finite(const TensorView& v);

}  // namespace yard::tune
