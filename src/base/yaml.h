// SPDX-License-Identifier: Apache-2.0
// Reading YAML, and so JSON, into a small tree with source positions.
//
// Only what configuration needs: maps with text as keys, lists, scalars. Scalars stay text. Aliases are copies. No
// exceptions, and bounded cost for hostile text: bytes, depth and nodes are limited, and aliases count as copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::base {

// Counted from 1; column in characters.
struct YamlMark {
  uint32_t line = 0, column = 0;
  bool operator==(const YamlMark&) const = default;
};

struct YamlEntry;

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;  // a scalar that can only be text
  YamlMark at;
  std::string text;                // of a scalar
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in source order, unique keys

  // The value of a key; null if there is none.
  const YamlNode* find(std::string_view key) const noexcept;
};

struct YamlEntry {
  std::string key;
  YamlMark key_at;
  YamlNode value;
};

// "nothing", "text", "a list", "a map": for messages.
const char* to_string(YamlNode::Kind kind) noexcept;

// Long text counts as several values, anchors and aliases as copies.
inline constexpr size_t kMostYamlBytes = 4 << 20, kMostYamlDepth = 64, kMostYamlValues = 200'000;

struct YamlError {
  YamlMark at;
  std::string message;
};

struct YamlDocument {
  YamlNode root;
  std::vector<YamlError> errors;
  bool whole = true;  // false: it could not be read to its end

  bool ok() const noexcept { return errors.empty(); }
};

// One document. Empty text has the root kNull.
YamlDocument parse_yaml(std::string_view text);

// Plain scalars as decimal numbers, which may have a sign; `.inf` and `.nan` are numbers.
std::optional<int64_t> yaml_whole_number(std::string_view text) noexcept;
std::optional<double> yaml_number(std::string_view text) noexcept;

// The text as a scalar that parse_yaml() reads back the same; in quotes where `quoted`, or where it must.
std::string yaml_scalar(std::string_view text, bool quoted = false);

}  // namespace yard::base
