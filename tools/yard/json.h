// SPDX-License-Identifier: Apache-2.0
// The JSON that commands print. Keys stay in the order in which they are added.
#pragma once

#include <fmt/format.h>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "output.h"

namespace yard::tool {

using Json = nlohmann::ordered_json;

// Parses JSON in linear time. Returns a discarded value if the text is invalid. Leaves out values
// that are nested deeper than in any answer or trace.
Json parse_json(std::string_view text);

// Returns null for an empty text, which stands for an unknown value.
inline Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

// These functions read an answer from another process, which may have another version. They return
// null, an empty value or 0 for a part that is missing or has another type.
inline const Json& value_at(const Json& j, const char* key) {
  static const Json kNull;
  const auto at = j.is_object() ? j.find(key) : j.end();
  return at != j.end() ? *at : kNull;
}
inline const Json& list_at(const Json& j, const char* key) {
  static const Json kEmpty = Json::array();
  const Json& v = value_at(j, key);
  return v.is_array() ? v : kEmpty;
}
inline std::string text_at(const Json& j, const char* key) {
  const Json& v = value_at(j, key);
  return v.is_string() ? v.get<std::string>() : std::string();
}
inline double number_at(const Json& j, const char* key) {
  const Json& v = value_at(j, key);
  return v.is_number() ? v.get<double>() : 0;
}
inline uint64_t count_at(const Json& j, const char* key) {
  const Json& v = value_at(j, key);
  return v.is_number_unsigned() ? v.get<uint64_t>() : 0;
}
inline bool flag_at(const Json& j, const char* key) {
  const Json& v = value_at(j, key);
  return v.is_boolean() && v.get<bool>();
}

// Increase this version when a change of any output could break programs that read it.
inline constexpr int kJsonSchema = 1;

// Prints the object after a member with the version. Replaces bytes that are not UTF-8.
inline void print_json(const Json& j) {
  Json all = {{"schema", kJsonSchema}};
  all.update(j);
  write_out(all.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace yard::tool
