// SPDX-License-Identifier: Apache-2.0
// The parameters of an op, read from the text of a schema that the library has accepted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yard::tool {

// One parameter: `key~?: T[*tokens, heads]`, `eps: float = 1e-6`.
struct SchemaParameter {
  enum Type { kTensor, kTensorList, kInt, kFloat, kBool, kString, kEnum };
  std::string name;
  Type type = kTensor;
  bool read = true;                // false if the op only writes it
  bool required = true;            // false for optional tensors and for scalars with a default
  std::string dtype;               // of a tensor: "f32", or a variable such as "T"
  std::vector<std::string> dims;   // of a tensor: "*rows", "hidden", "2*d"
  std::vector<std::string> words;  // of an enum
};

std::vector<SchemaParameter> parameters_of(std::string_view schema);
// The dtypes that `where VARIABLE in {...}` lists, in its order; empty if it does not.
std::vector<std::string> dtypes_of(std::string_view schema, std::string_view variable);

}  // namespace yard::tool
