// SPDX-License-Identifier: Apache-2.0
// Static maps: one kernel for an op, said in code.
//
//   yard::StaticMap map;
//   map.set("rms_norm", "default.simd").set("softmax", "vendor.onednn");
//   runtime.set_static_map(map).or_throw();     // an op or kernel that does not exist is an error
//
// In mode auto the mapped kernel comes first for calls it can take; in mode static it is the only one, and an op
// that nobody maps is the error `unmapped`. A map bypasses neither deny nor capability. What it says of an op is
// stronger than static_kernel_map of the rule file. `yard bake` writes tables for it from recorded calls.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace yard {

// A row of a table that is fixed at compile time.
struct MappedKernel {
  std::string_view op, kernel;
};

// The kernel a table has for an op; empty: none. Usable in static_assert.
constexpr std::string_view mapped_kernel(std::span<const MappedKernel> table,
                                         std::string_view op) noexcept {
  for (const MappedKernel& row : table)
    if (row.op == op) return row.kernel;
  return {};
}

// A plain value.
class StaticMap {
 public:
  using Kernels = std::map<std::string, std::string, std::less<>>;

  StaticMap() = default;
  explicit StaticMap(std::span<const MappedKernel> table) {
    for (const MappedKernel& row : table) set(std::string(row.op), std::string(row.kernel));
  }

  // In the place of what was said of the op before.
  StaticMap& set(std::string op, std::string kernel) {
    kernels_.insert_or_assign(std::move(op), std::move(kernel));
    return *this;
  }
  StaticMap& remove(std::string_view op) {
    if (const auto it = kernels_.find(op); it != kernels_.end()) kernels_.erase(it);
    return *this;
  }

  const Kernels& kernels() const noexcept { return kernels_; }
  bool empty() const noexcept { return kernels_.empty(); }
  bool operator==(const StaticMap&) const = default;

 private:
  Kernels kernels_;
};

}  // namespace yard
