// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <cmath>

namespace yard::base {

std::string json_list(const std::vector<std::string>& json_values) {
  return fmt::format("[{}]", fmt::join(json_values, ", "));
}

std::string json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return json_list(quoted);
}

JsonObject& JsonObject::add(std::string_view key, double number) {
  return add_json(key, std::isfinite(number) ? format_double(number) : "null");
}

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  if (text_.size() > 1) text_ += ", ";
  text_ += json_string(key);
  text_ += ": ";
  text_ += json;
  return *this;
}

}  // namespace yard::base
