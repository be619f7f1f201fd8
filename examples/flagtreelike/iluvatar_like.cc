// SPDX-License-Identifier: Apache-2.0
// A plugin with a backend of the code generator. Its machine adds 64 bits as two halves.
// [plugin]
#include <yard/plugin_function.hpp>

#include <optional>

#include "ir.h"

using namespace yard::plugin;
using codegen::Builder;
using codegen::Value;

static std::optional<Value> atomic_add(
    yard::Next<std::optional<Value>(Builder&, Value, Value)> next, Builder& builder, Value pointer,
    Value value) {
  if (value.bits != 64) return next(builder, pointer, value);  // as everybody does
  const Value low = builder.emit("atomic_rmw add low " + pointer.name + ", " + value.name, 32);
  builder.emit("atomic_rmw addc high " + pointer.name + ", " + low.name, 32);
  return std::nullopt;  // the sum is not to be had: an answer as good as any other
}

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const Plugin plugin =
      Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
          .add(function<atomic_add>("codegen", "atomic_add", "iluvatar_like"));
  return plugin.get();
}
// [/plugin]
