// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the fault backend: a small op `copy(out!, x)` and its real kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fault.h"

namespace yard::fault::testing {

template <class T>
struct Tensor {
  Tensor(yard_dtype_t dtype, std::vector<int64_t> dims, std::vector<T> values)
      : shape(std::move(dims)), data(std::move(values)) {
    t.data = data.data();
    t.device = {1, 0};
    t.ndim = static_cast<int32_t>(shape.size());
    t.dtype = dtype;
    t.shape = shape.data();
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  yard_value_t value() const {
    yard_value_t v{YARD_TAG_TENSOR, 0, {}};
    v.u.tensor = &t;
    return v;
  }
  std::vector<int64_t> shape;
  std::vector<T> data;
  yard_tensor_t t{};
};

inline constexpr yard_dtype_t kF32{2, 32, 1};
using Floats = std::vector<float>;

inline int32_t copy(plugin::Call call, plugin::Tensor out, plugin::Tensor x) {
  if (x.numel() > 0 && x.data<float>()[0] < 0) return call.fail(YARD_DECLINED, "negative");
  std::memcpy(out.data<float>(), x.data<float>(), static_cast<size_t>(x.numel()) * sizeof(float));
  return YARD_OK;
}
inline const yard_kernel_t& real_copy() {
  static const plugin::Kernel kernel = plugin::Kernel::of<copy>("copy", "default.real");
  return kernel.d;
}

// One call of copy on the n elements 1, 2, 3, and so on, made as a host makes it.
struct OneCall {
  explicit OneCall(int64_t n = 4)
      : out(kF32, {n}, Floats(static_cast<size_t>(n))), x(kF32, {n}, {}) {
    for (int64_t i = 1; i <= n; ++i) x.data.push_back(static_cast<float>(i));
    x.t.data = x.data.data();
  }
  int32_t operator()(const yard_kernel_t& kernel) {
    yard_call_t call{};
    call.size = sizeof call;
    call.self = kernel.self;
    call.error = error;
    call.error_size = sizeof error;
    const yard_value_t args[] = {out.value(), x.value()};
    return kernel.run(&call, args, 2);
  }
  Tensor<float> out, x;
  char error[64] = "";
};

}  // namespace yard::fault::testing
