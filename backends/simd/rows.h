// SPDX-License-Identifier: Apache-2.0
// Walks the rows of several tensors that agree in their leading dimensions. A walk can begin at any
// row, so that threads can share the rows.
#pragma once

#include <yard/plugin.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace yard::simd {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// The work that justifies another thread: about 20 microseconds on one core.
inline constexpr int64_t kPieceBytes = int64_t{1} << 18;

inline int64_t grain_of(int64_t bytes_per_row) noexcept {
  return std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, bytes_per_row));
}

// Calls that move more bytes than this write their outputs past the caches, which would evict them
// before they are read. A store into an uncached line would read the line first. The value is the
// part of the last cache that this machine's cores can count on; tests set it.
int64_t& cached_bytes() noexcept;

// Whether stores to `out` bypass the caches. `others` are the other large tensors of the call.
// Calls in place do not bypass, because their lines are cached.
inline bool streams(plugin::Tensor out, std::initializer_list<plugin::Tensor> others) noexcept {
  const auto bytes = [](plugin::Tensor t) { return t.numel() * (t.c()->dtype.bits / 8); };
  int64_t moved = bytes(out);
  for (const plugin::Tensor& t : others) {
    moved += bytes(t);
    if (t.data<char>() == out.data<char>()) return false;
  }
  return moved > cached_bytes();
}

// Returns the stride of a dimension in bytes, also for block-quantised types.
inline int64_t stride_bytes(plugin::Tensor t, int axis) noexcept {
  const yard_dtype_t d = t.c()->dtype;
  return t.stride(axis) / yard_unit_elements(d) * yard_unit_bytes(d);
}

template <size_t N>
class RowWalk {
 public:
  // A row is the last `inner` dimensions of the first tensor. All tensors have equal dimensions
  // before these. An absent tensor stays null.
  RowWalk(const std::array<plugin::Tensor, N>& tensors, int inner) noexcept {
    const plugin::Tensor& first = tensors[0];
    for (size_t k = 0; k < N; ++k)
      base_[k] = tensors[k] ? tensors[k].template data<char>() : nullptr;
    for (int axis = 0; axis < first.rank() - inner; ++axis) {
      const int64_t size = first.size(axis);
      rows_ *= size;
      if (size == 1) continue;
      std::array<int64_t, N> strides{};
      for (size_t k = 0; k < N; ++k)
        if (tensors[k]) strides[k] = stride_bytes(tensors[k], axis);
      push(size, strides);
    }
  }

  int64_t rows() const noexcept { return rows_; }

  class Cursor {
   public:
    template <class T>
    T* at(size_t tensor) const noexcept {
      return reinterpret_cast<T*>(at_[tensor]);
    }
    void next() noexcept {
      for (int axis = walk_->rank_ - 1; axis >= 0; --axis) {
        const int64_t last = walk_->sizes_[axis] - 1;
        const bool carry = index_[axis] == last;
        index_[axis] = carry ? 0 : index_[axis] + 1;
        for (size_t k = 0; k < N; ++k)
          if (at_[k] != nullptr) at_[k] += walk_->strides_[axis][k] * (carry ? -last : 1);
        if (!carry) return;
      }
    }

   private:
    friend class RowWalk;
    const RowWalk* walk_ = nullptr;
    std::array<char*, N> at_{};
    int64_t index_[YARD_MAX_RANK] = {};
  };

  // Returns a cursor at row `row` in row-major order. The walk must outlive the cursor.
  Cursor from(int64_t row) const noexcept {
    Cursor c;
    c.walk_ = this;
    c.at_ = base_;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      c.index_[axis] = row % sizes_[axis];
      row /= sizes_[axis];
      for (size_t k = 0; k < N; ++k)
        if (c.at_[k] != nullptr) c.at_[k] += strides_[axis][k] * c.index_[axis];
    }
    return c;
  }

 private:
  // Adds an innermost dimension, or merges it into the last one if all tensors step evenly through
  // both. A compact tensor thus has one dimension of rows, whatever its rank.
  void push(int64_t size, const std::array<int64_t, N>& strides) noexcept {
    bool even = rank_ > 0;
    for (size_t k = 0; k < N && even; ++k) even = strides_[rank_ - 1][k] == strides[k] * size;
    if (even) {
      sizes_[rank_ - 1] *= size;
      strides_[rank_ - 1] = strides;
    } else {
      sizes_[rank_] = size;
      strides_[rank_++] = strides;
    }
  }

  std::array<char*, N> base_{};
  int rank_ = 0;
  int64_t rows_ = 1;
  int64_t sizes_[YARD_MAX_RANK] = {};
  std::array<int64_t, N> strides_[YARD_MAX_RANK] = {};  // in bytes
};

}  // namespace yard::simd
