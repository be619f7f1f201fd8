// SPDX-License-Identifier: Apache-2.0
// What the arguments of one call say about a schema's names: for messages and output shapes, where
// words matter more than nanoseconds. Internal to src/op.
#pragma once

#include <yard/plugin.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "op/schema.h"

namespace yard::op {

template <class T>
struct Bound {
  T value{};
  std::string from;  // the parameter that said so
};

struct Bindings {
  std::map<std::string, Bound<int64_t>> dims;
  std::map<std::string, Bound<std::vector<int64_t>>> groups;
  std::map<std::string, Bound<DType>> variables;

  // The value of a clause's name: dimension, product or integer. Nothing if absent.
  std::optional<int64_t> number(const std::string& name) const;
};

// The integer parameters.
Bindings bind_integers(const Schema& schema, const yard_value_t* args);

// "f32[8,4096]": a parameter's type with all that is bound filled in.
std::string expected_text(const Param& param, const Bindings& known);

}  // namespace yard::op
