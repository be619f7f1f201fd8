// SPDX-License-Identifier: Apache-2.0
// Guarded memory of one tensor, and generated contents for it.
//
// Guard regions lie before and after the tensor. They and the gaps between elements hold bytes that no kernel may read
// or change. Of a tensor that is read they are all ones, which is NaN in every float type, so that an out-of-bounds
// read spoils the result. Of one that is written they have another pattern, so that an element copied too far is seen.
#pragma once

#include <yard/call_spec.h>

#include <memory>
#include <string>
#include <vector>

#include "tune/elements.h"
#include "tune/random.h"

namespace yard::tune {

class Buffer {
 public:
  static constexpr size_t kGuard = 256;  // bytes; a multiple of every alignment

  Buffer(const ParsedTensor& tensor, bool written);

  const TensorView& view() const noexcept { return view_; }
  // Saves the memory, guards included, for restore() and damage().
  void save() { image_.assign(memory_.get(), memory_.get() + room_); }
  void restore() const;
  // Sets every byte of every element.
  void scramble(uint8_t byte) const;

  // The first difference from the saved memory, with or without the elements: "4 bytes after its last element". Empty
  // if there is none.
  std::string damage(bool elements) const;

 private:
  struct Free {
    void operator()(void* p) const noexcept;
  };
  std::unique_ptr<char, Free> memory_;
  size_t room_ = 0;
  char* begin_ = nullptr;  // lowest byte of any element
  size_t bytes_ = 0;       // from there to the end of the highest element
  TensorView view_;
  std::vector<char> image_;
};

// Bytes from the lowest address of any element to the end of the highest. A double, since strides are not checked.
double reach_in_bytes(const ParsedTensor& tensor);

// Values of integer tensors: from `least` to below `most`.
struct IntegerRange {
  int64_t least = 0;
  int64_t most = 1024;
};
void fill(const TensorView& view, Random random, Contents contents, IntegerRange integers);

}  // namespace yard::tune
