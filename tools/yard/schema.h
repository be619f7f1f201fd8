// SPDX-License-Identifier: Apache-2.0
// Parses the parameters of an op from the text of its schema, which the library has accepted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yard::tool {

// A parameter such as `key~?: T[*tokens, heads]` or `eps: float = 1e-6`.
struct SchemaParameter {
  enum Type { kTensor, kTensorList, kInt, kFloat, kBool, kString, kEnum };
  std::string name;
  Type type = kTensor;
  bool read = true;                // false if the op only writes it
  bool required = true;            // false for optional tensors and for scalars with a default
  std::string dtype;               // for a tensor: "f32", or a variable such as "T"
  std::vector<std::string> dims;   // for a tensor: "*rows", "hidden", "2*d"
  std::vector<std::string> words;  // for an enum
};

std::vector<SchemaParameter> parameters_of(std::string_view schema);
// Returns the dtypes in `where VARIABLE in {...}`, in the order of the schema. Returns an empty
// list if there is no such clause.
std::vector<std::string> dtypes_of(std::string_view schema, std::string_view variable);

}  // namespace yard::tool
