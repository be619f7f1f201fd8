// SPDX-License-Identifier: Apache-2.0
// The grammar of single values, shared by rule files and the environment. Keywords are case-insensitive. Invalid text
// is reported with what was expected: as kParse, or in a list of problems; then the result is meaningless.
#pragma once

#include <yard/policy.h>
#include <yard/status.h>

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace yard::policy {

// What values look like; the table of ShapeRow describes each. Those from kWhole to kDuration have bounds, kWord and kModes
// have words, kMap to kOneOrMaps the keys of a struct.
enum class Shape : uint8_t {
  kVersion,
  kSwitch,
  kWhole,
  kNumber,
  kDuration,
  kWord,
  kMode,
  kModes,
  kText,
  kLevels,
  kPath,
  kFolder,
  kPaths,
  kOpGlob,
  kKernel,
  kOneKernel,
  kKernels,
  kGlobs,
  kVendors,
  kNames,
  kLabelNames,
  kOpKernel,
  kOneOpKernel,
  kOpKernels,
  kOpOrders,
  kOpModes,
  kSwitches,
  kOpSwitches,
  kLabels,
  kConditions,
  kFunctions,
  kMap,
  kMaps,
  kOneOrMaps
};

// The shape of a field's values, with bounds or words.
struct Form {
  Shape shape = Shape::kText;
  double least = 0, most = 0;  // of a duration in seconds; `least` of words: the value of the first
  std::span<const char* const> words = {};

  static constexpr Form whole(double least, double most) { return {Shape::kWhole, least, most}; }
  static constexpr Form number(double least, double most) { return {Shape::kNumber, least, most}; }
  static constexpr Form duration(double least, double most) {
    return {Shape::kDuration, least, most};
  }
  static constexpr Form word(std::span<const char* const> words, int first = 0) {
    return {Shape::kWord, static_cast<double>(first), 0, words};
  }
  static constexpr Form modes(std::span<const char* const> words) {
    return {Shape::kModes, 0, 0, words};
  }
  // kWord: between enumerators and words.
  template <class Enum>
  constexpr Enum value_of(size_t word) const {
    return static_cast<Enum>(static_cast<int>(least) + static_cast<int>(word));
  }
  template <class Enum>
  constexpr const char* word_of(Enum value) const {
    return words[static_cast<size_t>(static_cast<int>(value) - static_cast<int>(least))];
  }
};

// What the keys of a map may be.
struct MapKey {
  bool (*is)(std::string_view) noexcept;
  const char* pattern;   // for JSON Schema
  const char* expected;  // in messages
  bool quoted = false;   // in messages
};

// The grammar of a shape. Reader, messages and JSON Schema visit the table of these.
struct ShapeRow {
  Shape shape;
  const char* expected;  // in messages; null: wanted() makes it from the form
  const char*
      json;  // JSON Schema of one value; null: made from the form, or a map with the keys of a struct
  bool (*is)(std::string_view) noexcept = nullptr;  // whether text is such a value; null: any is
  bool many = false;                                // or a list of values
  const MapKey* key = nullptr;                      // of a map to such values; null: it is none
  Shape value = Shape::kText;                       // of a map: how its values are read
};
const ShapeRow& row_of(Shape shape) noexcept;

// "a whole number from 0 to 1000". `keys`: of a map.
std::string wanted(const Form& form, const std::vector<std::string>& keys = {});

// 0 or 1, off or on, false or true, no or yes.
Result<bool> read_switch(std::string_view text);
// Index of one of the words.
Result<size_t> read_word(std::string_view text, std::span<const char* const> words);
// A token of a per-op order, as Policy::per_op spells it: a kind, vendor:NAME or impl:ID.
Result<std::string> read_token(std::string_view text);
// `1.5s`, `500ms`; a bare number is seconds. Unset if it is no duration.
std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept;
// The text that read_duration() reads back.
std::string print_duration(std::chrono::nanoseconds d);

using Names = std::vector<std::string>;
using Orders = decltype(Policy::per_op);
using Problems = std::vector<std::string>;

// Names of vendors (kVendors) or globs over kernel ids (kGlobs), separated by ','.
Names read_list(std::string_view text, Shape shape, Problems& problems);
// `rms_norm=vendor|default;softmax=reference`.
Orders read_orders(std::string_view text, Problems& problems);

// Names of vendors in files and variables; a vendor named in code may have others.
bool is_vendor_name(std::string_view text) noexcept;
// Lower-case letters, digits, '_', '.'.
bool is_op_name(std::string_view text) noexcept;
// With '*' and '?' besides.
bool is_op_glob(std::string_view text) noexcept;
bool is_kernel_glob(std::string_view text) noexcept;
// A group of functions, or group/function, with '*' and '?' besides.
bool is_function_glob(std::string_view text) noexcept;
// Whether it has a '*' or '?'.
bool has_wildcard(std::string_view text) noexcept;

// The path of a value in a file: "settings.cache"; a key that is no plain word is in quotes: settings["b c"].
std::string child_path(std::string parent, std::string_view key);
// How messages show a value: 8, high, "in quotes".
std::string shown(std::string_view text, bool quoted);

}  // namespace yard::policy
