// SPDX-License-Identifier: Apache-2.0
// A small code generator in the shape of FlagTree's: it emits lines of text, and backends may have their own way with
// two of its functions.
#pragma once

#include <yard/hook.h>

#include <cstdint>
#include <optional>
#include <string>

#include "ir.h"

namespace codegen {

// [declare]
// How to add atomically; nothing where the value is not used. A backend may replace the implementation.
inline yard::Hook<std::optional<Value>(Builder&, Value, Value)> atomic_add_hook{
    "codegen.atomic_add"};
// The whole kernel of a matrix product. A backend may replace the definition.
inline yard::Hook<std::string(int64_t, int64_t, int64_t)> matmul_kernel_hook{
    "codegen.matmul_kernel"};
// [/declare]

// [implementation]
inline std::optional<Value> atomic_add(Builder& builder, Value pointer, Value value) {
  return yard::call_or(
      atomic_add_hook,
      [&] {
        return builder.emit("atomic_rmw add " + pointer.name + ", " + value.name, value.bits);
      },
      builder, pointer, value);
}
// [/implementation]

// [definition]
inline std::string matmul_kernel(int64_t m, int64_t n, int64_t k) {
  return "tile 64x64 of " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}

// Made once, wherever it is convenient: it follows what is active.
inline const auto matmul = yard::choose(matmul_kernel_hook, matmul_kernel);
// [/definition]

}  // namespace codegen
