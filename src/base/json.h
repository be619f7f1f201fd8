// SPDX-License-Identifier: Apache-2.0
// Writing JSON. Any thread may call these functions.
//
//   send(base::JsonObject().add("ok", true).add("name", text).text());
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace yard::base {

inline std::string json_list(const std::vector<std::string>& json_values) {
  return fmt::format("[{}]", fmt::join(json_values, ", "));
}

inline std::string json_strings(std::vector<std::string> texts) {
  for (std::string& text : texts) text = json_string(text);
  return json_list(texts);
}

// Writes an object key by key. Numbers that are not finite become null.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, const std::convertible_to<std::string_view> auto& text) {
    return add_json(key, json_string(text));
  }
  JsonObject& add(std::string_view key, bool value) {
    return add_json(key, value ? "true" : "false");
  }
  JsonObject& add(std::string_view key, std::integral auto value) {
    return add_json(key, std::to_string(value));
  }
  JsonObject& add(std::string_view key, double number) {
    return add_json(key, std::isfinite(number) ? format_double(number) : "null");
  }
  JsonObject& add_or_null(std::string_view key, std::string_view text) {
    return text.empty() ? add_json(key, "null") : add(key, text);
  }
  JsonObject& add_json(std::string_view key, std::string_view json) {
    const char* const separator = text_.size() > 1 ? ", " : "";
    text_ += fmt::format("{}{}: {}", separator, json_string(key), json);
    return *this;
  }

  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace yard::base
