// SPDX-License-Identifier: Apache-2.0
// Comparing the C++ signature of a typed op with the op's schema.
#include "dispatch/signature.h"

#include <fmt/format.h>

namespace yard::dispatch {
namespace {

// What params.h calls each letter.
const char* cpp_name(char letter) {
  switch (letter) {
    case 'r': return "In";
    case 'w': return "Out";
    case 'm': return "InOut";
    case 'R': return "OptIn";
    case 'W': return "OptOut";
    case 'M': return "OptInOut";
    case 'l': return "InList";
    case 's': return "std::string_view";
    case 'f': return "a floating-point type";
    case 'n': return "an integer or enum type";
    case 'b': return "bool";
    default: return "?";
  }
}

char letter_of(const op::Param& p) {
  switch (p.kind) {
    case op::Kind::kTensor: {
      const char c = p.access == op::Access::kRead    ? 'r'
                     : p.access == op::Access::kWrite ? 'w'
                                                      : 'm';
      return p.optional ? static_cast<char>(c - 'a' + 'A') : c;
    }
    case op::Kind::kTensorList: return 'l';
    case op::Kind::kInt:
    case op::Kind::kEnum: return 'n';
    case op::Kind::kFloat: return 'f';
    case op::Kind::kBool: return 'b';
    case op::Kind::kString: return 's';
  }
  return '?';
}

}  // namespace

Status check_signature(const op::Program& program, std::string_view letters) {
  const auto& params = program.schema().params;
  const auto wrong = [&](const std::string& what) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("op '{}' is declared with a C++ signature that does not fit its schema: {}\n"
                    "  schema: {}",
                    program.name(), what, op::to_string(program.schema())));
  };
  if (letters.size() != params.size())
    return wrong(fmt::format("{} parameters, the schema has {}", letters.size(), params.size()));
  for (size_t i = 0; i < letters.size(); ++i) {
    const char want = letter_of(params[i]);
    if (letters[i] != want)
      return wrong(fmt::format("parameter {} ('{}') is {}, expected {}", i + 1, params[i].name,
                               cpp_name(letters[i]), cpp_name(want)));
  }
  return {};
}

}  // namespace yard::dispatch
