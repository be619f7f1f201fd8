// SPDX-License-Identifier: Apache-2.0
#include "schema.h"

#include <algorithm>

namespace yard::tool {
namespace {

std::string_view trimmed(std::string_view s) {
  const size_t first = std::min(s.find_first_not_of(' '), s.size());
  s.remove_prefix(first);
  return s.substr(0, s.find_last_not_of(' ') + 1);
}

// Returns the parts between commas, up to the closing bracket. Ignores commas in brackets and
// quotes.
std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> to;
  int depth = 0;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    const bool closes = c == ')' || c == ']' || c == '}';
    if (depth == 0 && (c == ',' || closes)) {
      if (const auto part = trimmed(text.substr(begin, i - begin)); !part.empty())
        to.emplace_back(part);
      if (closes) break;
      begin = i + 1;
    }
    if (c == '[' || c == '{' || c == '(') ++depth;
    if (closes) --depth;
  }
  return to;
}

SchemaParameter parameter_of(std::string_view text) {
  SchemaParameter p;
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon), type = trimmed(text.substr(colon + 1));
  p.name = name.substr(0, name.find_first_of("!~? "));
  p.read = name.find('!') == name.npos;
  if (const size_t open = type.find('['); open != type.npos) {
    p.required = name.find('?') == name.npos;
    p.dtype = type.substr(0, open);
    p.dims = list_of(type.substr(open + 1));
    if (type.ends_with("[]") && type.find("][") != type.npos) p.type = SchemaParameter::kTensorList;
    return p;
  }
  p.required = type.find('=') == type.npos;
  if (type.starts_with("enum")) p.words = list_of(type.substr(type.find('{') + 1));
  p.type = type.starts_with("float")    ? SchemaParameter::kFloat
           : type.starts_with("bool")   ? SchemaParameter::kBool
           : type.starts_with("string") ? SchemaParameter::kString
           : type.starts_with("enum")   ? SchemaParameter::kEnum
                                        : SchemaParameter::kInt;
  return p;
}

}  // namespace

std::vector<SchemaParameter> parameters_of(std::string_view schema) {
  std::vector<SchemaParameter> to;
  for (const std::string& p : list_of(schema.substr(schema.find('(') + 1)))
    to.push_back(parameter_of(p));
  return to;
}

std::vector<std::string> dtypes_of(std::string_view schema, std::string_view variable) {
  const std::string wanted = " " + std::string(variable) + " in {";
  const size_t at = schema.find(wanted);
  if (at == schema.npos) return {};
  return list_of(schema.substr(at + wanted.size()));
}

}  // namespace yard::tool
