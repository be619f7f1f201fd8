// SPDX-License-Identifier: Apache-2.0
// A small code generator in the shape of FlagTree's. It emits lines of text, and backends may
// replace two of its functions.
#pragma once

#include <yard/function.h>

#include <cstdint>
#include <optional>
#include <string>

#include "ir.h"

namespace codegen {

// [declare]
// How to add atomically; nothing where the value is not used. An active backend may replace the
// implementation.
inline const yard::Function<std::optional<Value>(Builder&, Value, Value)> atomic_add_function{
    "codegen", "atomic_add"};
// [/declare]

// [implementation]
inline std::optional<Value> atomic_add(Builder& builder, Value pointer, Value value) {
  return atomic_add_function.call_or(
      [&] {
        return builder.emit("atomic_rmw add " + pointer.name + ", " + value.name, value.bits);
      },
      builder, pointer, value);
}
// [/implementation]

// Generates the whole kernel of a matrix product. An active backend may replace the definition.
inline const yard::Function<std::string(int64_t, int64_t, int64_t)> matmul{
    "codegen",
    "matmul",
    [](int64_t m, int64_t n, int64_t k) {
      return "tile 64x64 of " + std::to_string(m) + "x" + std::to_string(n) + "x" +
             std::to_string(k);
    },
    {.selection = yard::Selection::kActive}};

}  // namespace codegen
