// SPDX-License-Identifier: Apache-2.0
// Makes descriptors and registry states for tests, with the simplest valid defaults.
#pragma once

#include <gtest/gtest.h>
#include <yard/plugin.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/changes.h"

namespace yard::registry::testing {

// This op has everything that a limit can refer to.
inline constexpr const char* kNorm =
    "norm(out!: T[*rows, hidden], x: T[*rows, hidden], bias?: T[hidden], "
    "mode: enum{fast, exact} = fast, groups: int = 1) where out may_alias x";
inline constexpr const char* kNormSignature = "tttii";

inline int32_t succeed(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }

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

inline yard_kernel_t kernel_of(const char* op, const char* id, const char* backend,
                               yard_kind_t kind = YARD_KIND_DEFAULT, int32_t priority = 0) {
  yard_kernel_t d{};
  d.size = sizeof d, d.op = op, d.id = id, d.backend = backend;
  d.kind = kind, d.priority = priority, d.run = succeed;
  return d;
}

inline yard_function_t function_of(const char* name, const char* backend,
                                   const char* signature = "i64(i64)") {
  yard_function_t d{};
  d.size = sizeof d, d.name = name, d.group = "kda", d.backend = backend, d.signature = signature;
  d.function = reinterpret_cast<void (*)(void)>(succeed);
  return d;
}

// Puts a struct at the end of its allocation, so that a sanitizer notices reads past its stated
// size.
template <class T>
class Cut {
 public:
  Cut(const T& from, uint32_t size) : memory_(std::malloc(size)) {
    std::memset(memory_, 0x5a, size);
    std::memcpy(memory_, &from, std::min<size_t>(size, sizeof from));
    std::memcpy(memory_, &size, sizeof size);
  }
  ~Cut() { std::free(memory_); }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;
  const T& get() const { return *static_cast<const T*>(memory_); }

 private:
  void* memory_;
};

// The descriptors must be valid.
inline Step add(const yard_op_t& d, std::shared_ptr<void> keep = {}) {
  return AddOp{read_op(d, std::move(keep)).value()};
}
inline Step add(const yard_backend_t& d, std::shared_ptr<void> keep = {}) {
  return AddBackend{read_backend(d, std::move(keep)).value()};
}
inline Step add(const yard_kernel_t& d, std::shared_ptr<void> keep = {}) {
  return AddKernel{read_kernel(d, std::move(keep)).value()};
}
inline Step add(const yard_function_t& d, std::shared_ptr<void> keep = {}) {
  return AddFunction{read_function(d, std::move(keep)).value()};
}
inline Step replace(const yard_kernel_t& d, std::shared_ptr<void> keep = {}) {
  return AddKernel{read_kernel(d, std::move(keep)).value(), true};
}

// A registry state. Its steps must succeed.
class Shelf {
 public:
  Shelf() : state_(std::make_shared<State>()) {}

  Applied apply(const std::vector<Step>& steps) {
    Applied done = registry::apply(*state_, steps).value();
    state_ = done.state;
    return done;
  }
  // Applies a change that must fail and have no effect.
  Status fails(const std::vector<Step>& steps) const {
    auto r = registry::apply(*state_, steps);
    EXPECT_FALSE(r.ok());
    return r.ok() ? Status() : std::move(r).status();
  }
  template <class... D>
  Shelf& put(const D&... descriptors) {
    std::vector<Step> steps;
    (steps.push_back(add(descriptors)), ...);
    apply(steps);
    return *this;
  }

  const State& state() const { return *state_; }
  std::shared_ptr<const OpRecord> op_record(const std::string& op) const {
    const auto it = state_->op_records.find(op);
    return it == state_->op_records.end() ? nullptr : it->second;
  }
  std::shared_ptr<const Kernel> kernel(const std::string& op, const std::string& id) const {
    const auto f = op_record(op);
    if (f == nullptr) return nullptr;
    const auto it = f->kernels.find(id);
    return it == f->kernels.end() ? nullptr : it->second;
  }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace yard::registry::testing
