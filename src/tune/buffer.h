// SPDX-License-Identifier: Apache-2.0
// Guarded memory of one tensor.
//
// Guards lie before and behind it. They and the gaps between elements hold bytes that no kernel should
// read or change: all ones where the tensor is read, which is NaN in every float type, so that whoever
// reads there spoils its result; something else where it is written, so that copying one element too many
// shows, too.
#pragma once

#include <yard/call_spec.h>

#include <memory>
#include <string>
#include <vector>

#include "tune/elements.h"

namespace yard::tune {

// Calls f(pointer) for every element, in the order of indices.
template <class F>
void for_each_element(const TensorView& v, const F& f) {
  const auto size = static_cast<int64_t>(element_size(v.dtype()));
  const auto rank = static_cast<size_t>(v.rank());
  if (v.numel() == 0) return;
  const int64_t width = rank > 0 ? v.shape()[rank - 1] : 1;
  const int64_t step = rank > 0 ? v.strides()[rank - 1] * size : 0;
  std::vector<int64_t> index(rank, 0);
  for (int64_t rows = v.numel() / width; rows > 0; --rows) {
    int64_t offset = 0;
    for (size_t i = 0; i + 1 < rank; ++i) offset += index[i] * v.strides()[i];
    char* at = static_cast<char*>(v.data()) + offset * size;
    for (int64_t i = 0; i < width; ++i) f(at + i * step);
    for (size_t i = rank > 0 ? rank - 1 : 0; i-- > 0;) {
      if (++index[i] < v.shape()[i]) break;
      index[i] = 0;
    }
  }
}

class Buffer {
 public:
  static constexpr size_t kGuard = 256;  // bytes; a multiple of every alignment

  Buffer(const ParsedTensor& tensor, bool written);

  const TensorView& view() const noexcept { return view_; }
  // What is there now is what restore() brings back and damage() compares with.
  void remember() { image_.assign(memory_.get(), memory_.get() + room_); }
  void restore() const;
  // Every byte of every element.
  void scramble(uint8_t byte) const;

  // What is not as remembered, elements included or not: "4 bytes behind its last element"; empty if all
  // is.
  std::string damage(bool elements) const;

 private:
  struct Free {
    void operator()(void* p) const noexcept;
  };
  std::unique_ptr<char, Free> memory_;
  size_t room_ = 0;
  char* begin_ = nullptr;  // lowest byte that an element reaches
  size_t bytes_ = 0;       // from there to behind the highest
  TensorView view_;
  std::vector<char> image_;
};

// Bytes from the lowest to behind the highest that the tensor reaches; strides may be beyond all bounds.
double reach_in_bytes(const ParsedTensor& tensor);

}  // namespace yard::tune
