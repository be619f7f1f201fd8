// SPDX-License-Identifier: Apache-2.0
// Copying elements between two tensors of one shape in host memory, with any strides and dtypes.
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <cstddef>
#include <cstdint>

namespace yard::exec {

// One side of a copy: the address of the first element, and strides in elements.
template <class Byte>
struct Side {
  Byte* data;
  const int64_t* strides;
  DType dtype;
};

// Both sides have these sizes and do not overlap. Numbers are rounded to nearest, ties to even; integers that do not fit
// lose their upper bits. Of dtypes that are no numbers (bool, i4, u4) both are the same. No allocation. Copies of more than
// kSharedCopyBytes are shared among the threads of the host, if there is one.
inline constexpr int64_t kSharedCopyBytes = int64_t{1} << 20;
void copy_elements(const Side<const std::byte>& from, const Side<std::byte>& to,
                   const int64_t* sizes, int32_t rank, const yard_host_t* host = nullptr) noexcept;

}  // namespace yard::exec
