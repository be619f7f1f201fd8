// SPDX-License-Identifier: Apache-2.0
// Writing JSON objects. Any thread may call these functions.
//
//   send(base::JsonObject().add("ok", true).add("name", text).text());
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace yard::base {

std::string json_list(const std::vector<std::string>& json_values);
std::string json_strings(const std::vector<std::string>& texts);

// Writes an object key by key. Numbers that are not finite become null.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, const std::convertible_to<std::string_view> auto& text) {
    return add_json(key, json_string(text));
  }
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>)
      return add_json(key, value ? "true" : "false");
    else
      return add_json(key, std::to_string(value));
  }
  JsonObject& add(std::string_view key, double number);
  // Adds null if the text is empty.
  JsonObject& add_or_null(std::string_view key, std::string_view text) {
    return text.empty() ? add_json(key, "null") : add(key, text);
  }
  // Adds a value that is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view json);

  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace yard::base
