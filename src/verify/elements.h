// SPDX-License-Identifier: Apache-2.0
// Reads, copies and generates elements of tensors in host memory, and guards that memory. The
// elements of a block-quantised tensor are its bytes.
#pragma once

#include <yard/call_spec.h>

#include <cstdlib>
#include <limits>
#include <string_view>

#include "op/numbers.h"
#include "op/overlap.h"
#include "verify/random.h"

namespace yard::verification {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the bytes of one element in memory. Types of less than a byte take one.
size_t element_size(DType t) noexcept;
inline TensorView element_view(const TensorView& v) noexcept {
  return yard_is_blocks(v.c().dtype) ? op::ByteTensor::bytes_of(v.c()) : v;
}

struct FloatType {
  DType dtype;
  uint64_t not_finite;  // bits that only infinities and NaN have all set
  double smallest_normal, largest;
  double overflow;    // the first power of two beyond the range
  double rtol, atol;  // for ops that do not state tolerances
};
std::span<const FloatType> float_types() noexcept;
// Returns null if `t` is not a type of floats.
const FloatType* float_type(DType t) noexcept;

using op::load;
using op::store;
// Formats a number for messages: up to nine digits, and NaN without its sign.
std::string format_element(double value);

// Calls f(index, offset in elements, width) for every row along the last dimension, in index order.
// The last component of the index is 0. A tensor without dimensions is one row of one element.
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
    f(index, offset, width);
    for (size_t i = rank > 0 ? rank - 1 : 0; i-- > 0;) {
      if (++index[i] < v.shape()[i]) break;
      index[i] = 0;
    }
  }
}

// Calls f(address, bytes) for all elements in index order, and for a contiguous row only once.
template <class F>
void for_each_run(const TensorView& of, const F& f) {
  const TensorView v = element_view(of);
  const auto size = static_cast<int64_t>(element_size(v.dtype()));
  const int64_t step = v.rank() > 0 ? v.strides().back() : 1;
  for_each_row(v, [&](const auto&, int64_t offset, int64_t width) {
    char* const row = static_cast<char*>(v.data()) + offset * size;
    if (step == 1) return f(row, static_cast<size_t>(width * size));
    for (int64_t i = 0; i < width; ++i) f(row + i * step * size, static_cast<size_t>(size));
  });
}
template <class F>
void for_each_element(const TensorView& v, const F& f) {
  const size_t size = element_size(v.dtype());
  for_each_run(v, [&](char* run, size_t bytes) {
    for (char* at = run; at < run + bytes; at += size) f(at);
  });
}

// Both tensors must have equal dtypes, shapes and strides.
void copy_elements(const TensorView& from, const TensorView& to);
// Returns the elements in index order, without gaps.
std::string packed_elements(const TensorView& from);
// `bytes` must have exactly packed_bytes(to) bytes.
void unpack_elements(std::string_view bytes, const TensorView& to);
uint64_t packed_bytes(const TensorView& v) noexcept;

// The first element of a float tensor that is not finite. Other dtypes have no such elements.
struct NotFinite {
  std::vector<int64_t> index;
  double value = 0;
};
std::optional<NotFinite> first_not_finite(const TensorView& v);

// Guarded memory of one tensor. No kernel may read or change the gaps between elements or the
// guards before and after the tensor. For a tensor that is read, they are all ones, which is NaN in
// every float type, so that a read out of bounds spoils the result. For a tensor that is written,
// they have another pattern, so that a write out of bounds is seen.
class Buffer {
 public:
  static constexpr size_t kGuard = 256;  // bytes; a multiple of every alignment

  // Makes memory for a tensor like `form`, whose data is not used.
  Buffer(const TensorView& form, uint32_t align, bool written);

  const TensorView& view() const noexcept { return view_; }
  // Saves the memory, guards included, for restore() and damage().
  void save() { image_.assign(memory_.get(), memory_.get() + room_); }
  void restore() const;  // does nothing before save()
  void scramble(uint8_t byte) const;

  // Describes the first difference from the saved memory, with or without the elements, such as "4
  // bytes after its last element". Empty if there is none.
  std::string damage(bool elements) const;

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t room_ = 0;
  char* begin_ = nullptr;  // lowest byte of any element
  size_t bytes_ = 0;       // from there to the end of the highest element
  TensorView view_;
  std::vector<char> image_;
};

// Returns the bytes from the first element to the end of the last, as unchecked strides say.
double reach_in_bytes(const TensorView& form);

// Values of integer tensors, from `least` to below `most`.
struct IntegerRange {
  int64_t least = 0;
  int64_t most = 1024;
};
void fill(const TensorView& view, Random random, Contents contents, IntegerRange integers);

}  // namespace yard::verification
