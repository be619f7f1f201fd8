// SPDX-License-Identifier: Apache-2.0
// Reads YAML, and thus JSON, into a small tree with source positions: maps with text as keys,
// lists, and scalars, which stay text. Aliases become copies. The cost of hostile text is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::base {

// Lines and columns count from 1, columns in characters.
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
  std::string text;                // for a scalar
  std::vector<YamlNode> items;     // for a list
  std::vector<YamlEntry> entries;  // for a map, in source order, with unique keys

  const YamlNode* find(std::string_view key) const noexcept;
};

struct YamlEntry {
  std::string key;
  YamlMark key_at;
  YamlNode value;
};

const char* to_string(YamlNode::Kind kind) noexcept;

// Long texts count as several values. Anchors and aliases count as copies.
inline constexpr size_t kMostYamlBytes = 4 << 20, kMostYamlDepth = 64, kMostYamlValues = 200'000;

struct YamlError {
  YamlMark at;
  std::string message;
};

struct YamlDocument {
  YamlNode root;
  std::vector<YamlError> errors;
  bool whole = true;  // the text could be read to its end
};

// The root of an empty text is kNull.
YamlDocument parse_yaml(std::string_view text);

// These functions read plain scalars as decimal numbers with or without a sign. `.inf` and `.nan`
// are numbers.
std::optional<int64_t> yaml_whole_number(std::string_view text) noexcept;
std::optional<double> yaml_number(std::string_view text) noexcept;

// Writes text as a scalar, in quotes if `quoted` is set or if the text needs them.
std::string yaml_scalar(std::string_view text, bool quoted = false);

}  // namespace yard::base
