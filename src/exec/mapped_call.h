// SPDX-License-Identifier: Apache-2.0
// A MappedCall converts the arguments of a call for a kernel with its own parameters: to the
// kernel's order and, where the kernel requires another layout, dtype or padding, by a transform.
//
//   MappedCall mapped(*kernel.map, args);      // which tensors need buffers
//   mapped.place(memory), mapped.copy_in(host);
//   ...                                        // the kernel runs on mapped.args()
//   mapped.copy_out(host);                     // if it succeeded
#pragma once

#include "op/argument_map.h"

namespace yard::exec {

// ---- Copying elements between two tensors of one shape in host memory ----

template <class Byte>
struct Side {
  Byte* data;
  const int64_t* strides;
  DType dtype;
};

// Both sides have these sizes and must not overlap. Numbers are rounded to nearest, ties to even,
// and integers that do not fit lose their upper bits. For bool, i4 and u4, both sides must have the
// same dtype. Allocates nothing. Threads of the host share copies of more than kSharedCopyBytes.
inline constexpr int64_t kSharedCopyBytes = int64_t{1} << 20;
void copy_elements(const Side<const std::byte>& from, const Side<std::byte>& to,
                   const int64_t* sizes, int32_t rank, const yard_host_t* host = nullptr) noexcept;

// Copies the elements of a tensor in host memory to a buffer of compact_bytes(), or back.
uint64_t compact_bytes(const yard_tensor_t& t) noexcept;
void copy_compact(const yard_tensor_t& t, std::byte* buffer, bool back) noexcept;

// Lives on the stack and allocates nothing. Borrows the map and the arguments.
class MappedCall {
 public:
  // Arguments that need a transform must be in host memory. Computes missing facts.
  MappedCall(const op::ArgumentMap& map, const yard_value_t* args) noexcept;
  MappedCall& operator=(MappedCall&&) = delete;

  // Returns the arguments in the kernel's order. Arguments in buffers have no data before place().
  const yard_value_t* args() const noexcept { return args_; }
  uint32_t count() const noexcept { return static_cast<uint32_t>(map_.params.size()); }
  // Returns the size of all buffers, or UINT64_MAX if it overflows.
  uint64_t bytes() const noexcept { return bytes_; }
  bool transforms() const noexcept { return buffers_ > 0; }
  // Returns whether the host can make all buffers. Selection guarantees this for checked calls.
  bool possible() const noexcept { return possible_; }
  bool buffers_outputs() const noexcept { return !writes_through_; }

  // `memory` must have bytes() bytes, aligned to 64.
  void place(void* memory) noexcept;
  // Replaces arguments that need no transform by the caller's own tensors.
  void pass_on(const yard_value_t* given) noexcept;
  // `host` may be null; see copy_elements().
  void copy_in(const yard_host_t* host) const noexcept;
  void copy_out(const yard_host_t* host) const noexcept;

 private:
  struct Tensor {
    yard_tensor_t t;
    int64_t shape[YARD_MAX_RANK], strides[YARD_MAX_RANK];
    const yard_tensor_t* of;  // the caller's tensor
    const op::KernelParam* param;
    uint64_t at, size;  // offset and size of its buffer in bytes
    bool is_buffered;   // else it is a view of the caller's tensor
  };

  // Returns false if the tensor is passed unchanged.
  bool map_tensor(const op::KernelParam& param, yard_value_t& value) noexcept;
  void lay_out(Tensor& to) noexcept;
  void copy(const Tensor& t, bool back, const yard_host_t* host) const noexcept;

  const op::ArgumentMap& map_;
  uint64_t bytes_ = 0;
  uint32_t tensors_ = 0, buffers_ = 0;
  bool possible_ = true;
  bool writes_through_ = false;  // the kernel writes to a tensor of the caller
  yard_value_t args_[YARD_MAX_ARGS];
  bool is_own_[YARD_MAX_ARGS] = {};  // the argument is one of own_
  Tensor own_[YARD_MAX_ARGS];        // the first tensors_ elements are used
};

}  // namespace yard::exec
