// SPDX-License-Identifier: Apache-2.0
// Shared by the integration tests: short descriptors, an empty runtime, tensors with memory, and
// kernels that record that they ran.
#pragma once

#include <gtest/gtest.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace yard::testing {

inline constexpr const char* kCopy = "copy(out!: T[n], x: T[n], by: int = 0) where out may_alias x";

// The `self` of the kernel that ran last on this thread. Tests use small numbers for it.
inline thread_local intptr_t t_ran = 0;

inline int32_t leave_trace(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_ran = reinterpret_cast<intptr_t>(call->self);
  return YARD_OK;
}

inline yard_op_t op_of(const char* schema) {
  yard_op_t d{};
  d.size = sizeof d, d.schema = schema;
  return d;
}
inline yard_backend_t backend_of(const char* name, const char* vendor = nullptr) {
  yard_backend_t d{};
  d.size = sizeof d, d.name = name, d.vendor = vendor;
  return d;
}
inline yard_kernel_t kernel_of(const char* op, const char* id, intptr_t self,
                               int32_t priority = 0) {
  yard_kernel_t d{};
  d.size = sizeof d, d.op = op, d.id = id, d.backend = "test";
  d.kind = YARD_KIND_DEFAULT, d.priority = priority;
  d.self = reinterpret_cast<void*>(self), d.run = leave_trace;
  return d;
}

// A runtime that contains only a backend `test` and one op.
struct Bare {
  explicit Bare(const char* schema = kCopy, size_t plans_per_op = 4096)
      : runtime(settings(plans_per_op)) {
    Changes c;
    c.add_backend(backend_of("test")).add_op(op_of(schema));
    runtime.apply(std::move(c)).or_throw();
  }
  Status add(const yard_kernel_t& k, std::shared_ptr<void> keep = {}) {
    Changes c;
    c.add_kernel(k, std::move(keep));
    return runtime.apply(std::move(c)).status();
  }
  Status remove(const char* op, const char* id) {
    Changes c;
    c.remove_kernel(op, id);
    return runtime.apply(std::move(c)).status();
  }
  static RuntimeSettings settings(size_t plans_per_op) {
    RuntimeSettings s{false, plans_per_op, false};
    return s;
  }
  Runtime runtime;
};

struct Floats {
  explicit Floats(int64_t n) : data(static_cast<size_t>(n)), view(data.data(), DType::f32, {n}) {}
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  std::vector<float> data;
  TensorView view;
};

inline yard_value_t value_of(const TensorView& t) { return Value(t).c(); }

}  // namespace yard::testing
