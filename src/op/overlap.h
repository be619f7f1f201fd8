// SPDX-License-Identifier: Apache-2.0
// Whether tensors share memory. Needed only when the byte ranges of two tensors meet, or when a
// written tensor has unusual strides.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <cstdint>

namespace yard::op {

// Holds products of two 64-bit numbers. Multiplication is unsigned, because some run-time libraries
// lack the function that sanitizers call for signed overflow.
__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;
inline Wide times(Wide a, Wide b) noexcept {
  return static_cast<Wide>(static_cast<UnsignedWide>(a) * static_cast<UnsignedWide>(b));
}

// A tensor whose elements have addresses. Block-quantised tensors become tensors of bytes. The
// original tensor must outlive it.
class ByteTensor {
 public:
  explicit ByteTensor(const yard_tensor_t& t) noexcept : tensor_(&t) {
    if (yard_is_blocks(t.dtype)) [[unlikely]]
      bytes_ = bytes_of(t), tensor_ = &bytes_.c();
  }
  ByteTensor(const ByteTensor&) = delete;
  ByteTensor& operator=(const ByteTensor&) = delete;
  const yard_tensor_t& get() const noexcept { return *tensor_; }

  // Returns the blocks of a tensor as u8. The last dimension counts the bytes of blocks.
  static TensorView bytes_of(const yard_tensor_t& blocks) noexcept;

 private:
  const yard_tensor_t* tensor_;
  TensorView bytes_;
};

enum class Overlap : uint8_t {
  kNone,
  kSame,     // the same memory, dtype, shape and strides
  kPartial,  // anything else that shares a byte
};

// Exact for all usual layouts; interleaved slices of one buffer do not overlap. Returns kPartial
// for strides that would take too long. Tensors without data or elements overlap nothing. Both
// tensors need facts. Does not allocate.
Overlap overlap(const yard_tensor_t& a, const yard_tensor_t& b) noexcept;

// Whether two indices are the same element. Exact, or true if that would take too long.
bool overlaps_itself(const yard_tensor_t& t) noexcept;

// Returns the span of a tensor in units of 64 bytes. Sign extension makes an unknown span (and any
// above 128 GiB) larger than every distance.
inline uint64_t span_of(uint64_t facts) noexcept {
  return static_cast<uint64_t>(static_cast<int64_t>(facts) >> YARD_FACTS_SPAN_SHIFT);
}

// A quick test from the facts. Returns false only if the byte ranges certainly do not meet.
inline bool ranges_may_meet(const yard_tensor_t& a, const yard_tensor_t& b) noexcept {
  const uint64_t away = (reinterpret_cast<uintptr_t>(b.data) + b.byte_offset) -
                        (reinterpret_cast<uintptr_t>(a.data) + a.byte_offset);
  return away / 64 < span_of(a.facts) || (0 - away) / 64 < span_of(b.facts);
}

}  // namespace yard::op
