// SPDX-License-Identifier: Apache-2.0
// JSON: a strict reader for text from outside, and a writer of objects. Pure functions; any thread.
//
//   send(base::JsonObject().add("ok", true).add("name", text).text());
#pragma once

#include <yard/status.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/yaml.h"

namespace yard::base {

// One JSON value (RFC 8259) in the tree that YAML has. Strings are scalars in quotes; numbers, true and false are scalars
// without, as they were written; null is kNull. Unlike parse_yaml() it accepts JSON only: no comments, anchors, bare words
// or repeated keys. kParse with the place of the first error; cost is bounded by the limits.
Result<YamlNode> parse_json(std::string_view text, const YamlLimits& limits = {});

// The value as JSON on one line. A scalar without quotes that is neither a number nor true or false becomes a string.
std::string to_json(const YamlNode& node);

// "a string", "a number", "true or false", "null", "a list", "an object": for messages.
const char* json_kind(const YamlNode& node) noexcept;
// For messages: "none" for null pointers, text in quotes, other values as JSON; long ones are cut.
std::string json_excerpt(const YamlNode* node);
// Its value, if that is of the kind.
const std::string* json_text(const YamlNode& node) noexcept;
std::optional<bool> json_switch(const YamlNode& node) noexcept;
std::optional<int64_t> json_whole_number(const YamlNode& node) noexcept;

std::string json_list(const std::vector<std::string>& json_values);
std::string json_strings(const std::vector<std::string>& texts);

// An object, written key by key. Not finite numbers become null.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, const char* text) {
    return add(key, std::string_view(text));
  }
  JsonObject& add(std::string_view key, const std::string& text) {
    return add(key, std::string_view(text));
  }
  JsonObject& add(std::string_view key, double number);
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>)
      return add_json(key, value ? "true" : "false");
    else
      return add_json(key, std::to_string(value));
  }
  // Null where it is empty.
  JsonObject& add_or_null(std::string_view key, std::string_view text) {
    return text.empty() ? add_json(key, "null") : add(key, text);
  }
  // A value that is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view json);

  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace yard::base
