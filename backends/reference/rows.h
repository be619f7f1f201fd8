// SPDX-License-Identifier: Apache-2.0
// Walks tensors of any rank and any strides: rows along the last dimension, and the leading
// dimensions that several tensors share.
//
// Strides may be positive, zero or negative, and data need not be aligned to the element type.
// Empty tensors may have no data, because nothing is read or computed for missing elements.
#pragma once

#include <yard/plugin.hpp>

#include <array>
#include <cstring>
#include <span>

#include "numeric.h"

namespace yard::reference {

// One dimension of a tensor, from element `offset` on. Reads widen and writes round.
template <class T>
class Row {
 public:
  Row(plugin::Tensor t, int64_t offset, int axis = -1) noexcept
      : base_(t.data<char>()), offset_(offset), stride_(t.stride(axis)), size_(t.size(axis)) {}

  int64_t size() const noexcept { return size_; }
  double operator[](int64_t i) const noexcept {
    T value;
    std::memcpy(&value, address(i), sizeof value);
    return to_double(value);
  }
  void set(int64_t i, double value) const noexcept {
    const T rounded = from_double<T>(value);
    std::memcpy(address(i), &rounded, sizeof rounded);
  }

 private:
  char* address(int64_t i) const noexcept {
    return base_ + (offset_ + i * stride_) * static_cast<int64_t>(sizeof(T));
  }
  char* base_;
  int64_t offset_, stride_, size_;
};

// Reads the element that is `offset` elements from the first.
template <class T>
double load(plugin::Tensor t, int64_t offset) noexcept {
  T value;
  std::memcpy(&value, t.data<char>() + offset * static_cast<int64_t>(sizeof value), sizeof value);
  return to_double(value);
}
template <class T>
void store(plugin::Tensor t, int64_t offset, double v) noexcept {
  const T value = from_double<T>(v);
  std::memcpy(t.data<char>() + offset * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

inline double float_at(plugin::Tensor t, int64_t offset) noexcept {
  switch (t.dtype()) {
    case YARD_F16: return load<F16>(t, offset);
    case YARD_BF16: return load<BF16>(t, offset);
    default: return load<float>(t, offset);
  }
}

inline int64_t index_at(plugin::Tensor t, int64_t offset) noexcept {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, t.data<char>() + offset * static_cast<int64_t>(sizeof value), sizeof value);
    return int64_t{value};
  };
  return t.dtype() == YARD_I64 ? read(int64_t{}) : read(int32_t{});
}
inline void set_index(plugin::Tensor t, int64_t offset, int64_t index) noexcept {
  const auto write = [&]<class T>(T value) {
    std::memcpy(t.data<char>() + offset * static_cast<int64_t>(sizeof value), &value, sizeof value);
  };
  t.dtype() == YARD_I64 ? write(index) : write(static_cast<int32_t>(index));
}

// Calls body(offsets) for every index of the dimensions `shape`, in row-major order. offsets[k] is
// the offset of that index in tensors[k], in elements. The tensors have these leading dimensions;
// the offset of an absent tensor stays 0.
template <size_t N, class Body>
void for_each_index(std::span<const int64_t> shape, const std::array<plugin::Tensor, N>& tensors,
                    const Body& body) {
  int64_t strides[N][YARD_MAX_RANK] = {};
  int64_t index[YARD_MAX_RANK] = {};
  std::array<int64_t, N> offsets{};
  const int rank = static_cast<int>(shape.size());
  for (const int64_t n : shape)
    if (n == 0) return;
  for (size_t k = 0; k < N; ++k)
    for (int axis = 0; tensors[k] && axis < rank; ++axis)
      strides[k][axis] = tensors[k].stride(axis);

  for (;;) {
    body(offsets);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      const int64_t last = shape[static_cast<size_t>(axis)] - 1;
      const bool carry = index[axis] == last;
      index[axis] = carry ? 0 : index[axis] + 1;
      for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][axis] * (carry ? -last : 1);
      if (!carry) break;
    }
    if (axis < 0) return;
  }
}

// Returns the dimensions of `t` without the last `inner` ones.
inline std::span<const int64_t> leading(plugin::Tensor t, int inner) noexcept {
  return {t.c()->shape, static_cast<size_t>(t.rank() - inner)};
}

// Calls body(row, row, ...) for every row along the last dimension. All other dimensions of the
// tensors must agree.
template <class T, class Body, class... Tensors>
void for_each_row(const Body& body, plugin::Tensor first, Tensors... others) {
  const std::array<plugin::Tensor, 1 + sizeof...(Tensors)> tensors{first, others...};
  for_each_index(leading(first, 1), tensors, [&](const auto& offsets) {
    [&]<size_t... I>(std::index_sequence<I...>) { body(Row<T>(tensors[I], offsets[I])...); }
    (std::make_index_sequence<1 + sizeof...(Tensors)>());
  });
}

}  // namespace yard::reference
