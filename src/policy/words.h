// SPDX-License-Identifier: Apache-2.0
// The grammar of single values in rule files and the environment. Keywords are case-insensitive.
// Invalid text is a kParse error or a problem, and both say what was expected.
#pragma once

#include <yard/policy.h>

#include "base/text.h"

namespace yard::policy {

// The form of values, for the reader, messages and the JSON Schema.
struct Shape {
  const char* expected = nullptr;  // for messages; if null, wanted() makes it from the form
  const char* chars = nullptr;     // a character class such as `a-z_`; null allows any character
  bool (*is)(std::string_view) noexcept = nullptr;  // a further condition on text
  bool many = false;                                // a list of values is allowed, too
  bool ref = false;                                 // {kernel: ID, optional: true} is allowed, too
  const Shape *key = nullptr, *value = nullptr;     // of a map
};
bool fits(std::string_view text, const Shape& shape) noexcept;
bool has_wildcard(std::string_view text) noexcept;  // '*' or '?'
bool is_vendor_name(std::string_view text) noexcept;
bool is_function_glob(std::string_view text) noexcept;

namespace shape {

inline constexpr const char* kNameChars = "A-Za-z0-9_.-";
inline constexpr const char* kGlobChars = "A-Za-z0-9_.*?-";

inline constexpr Shape kVersion{"\"1.0\""}, kSwitch{"true or false"};
// These have bounds.
inline constexpr Shape kWhole{}, kNumber{}, kDuration{};
// These have a closed list of words.
inline constexpr Shape kWord{}, kWords{.many = true};
inline constexpr Shape kMode{"auto, static, dynamic, config, hot_reload or a mode of the program",
                             kNameChars};
inline constexpr Shape kText{"text"}, kLevels{"levels of loggers"};
inline constexpr Shape kPath{"the path of a file"}, kFolder{"the path of a folder"};
inline constexpr Shape kPaths{.expected = "a path or a list of paths", .many = true};
inline constexpr Shape kOp{"the name of an op or a glob as attention.*", "a-z0-9_.*?"};
inline constexpr Shape kOneOp{"the name of one op", "a-z0-9_."};
inline constexpr Shape kKernel{"the id of a kernel or a glob as vendor.*", kGlobChars};
inline constexpr Shape kOneKernel{"reference, or the id of one kernel", kNameChars};
inline constexpr Shape kKernels{.expected = "the id of a kernel or a list of ids",
                                .chars = kNameChars,
                                .many = true,
                                .ref = true};
inline constexpr Shape kGlobs{
    .expected = "ids or globs of kernels", .chars = kGlobChars, .many = true, .ref = true};
inline constexpr Shape kVendors{.expected = "names of vendors", .is = is_vendor_name, .many = true};
inline constexpr Shape kBackends{
    .expected = "names of backends", .chars = kNameChars, .many = true};
inline constexpr Shape kLabelNames{
    .expected = "names of labels", .chars = kNameChars, .many = true};
inline constexpr Shape kConditions{"a map from fields to values"};
// These have the keys of a struct.
inline constexpr Shape kMap{}, kMaps{"a list of maps"}, kOneOrMaps{.many = true};
inline constexpr Shape kTokens{.expected = "default, vendor, reference, vendor:NAME or impl:ID",
                               .many = true};
inline constexpr Shape kRef{.expected = "the id of one kernel", .chars = kNameChars, .ref = true};
inline constexpr Shape kBackend{.expected = "the name of a backend", .is = is_vendor_name};
inline constexpr Shape kFunction{"a group, or a function as group/name, or a glob of such",
                                 "A-Za-z0-9_.*?/-", is_function_glob};
constexpr Shape map_of(const char* expected, const Shape& key, const Shape& value) {
  return {.expected = expected, .key = &key, .value = &value};
}
inline constexpr Shape kOpKernel = map_of("a map from ops to ids of kernels", kOp, kRef);
inline constexpr Shape kOneOpKernel = map_of("a map from ops to ids of kernels", kOneOp, kRef);
inline constexpr Shape kOpKernels = map_of("a map from ops to lists of kernels", kOp, kKernels);
inline constexpr Shape kOpOrders = map_of("a map from ops to lists of tokens", kOneOp, kTokens);
inline constexpr Shape kOpModes = map_of("a map from ops to modes", kOp, kMode);
inline constexpr Shape kSwitches =
    map_of("a map from backends to true or false", kBackend, kSwitch);
inline constexpr Shape kOpSwitches = map_of("a map from ops to true or false", kOp, kSwitch);
inline constexpr Shape kLabels = map_of("a map from labels to texts", kText, kText);
inline constexpr Shape kFunctions =
    map_of("a map from groups or functions to maps", kFunction, kMap);

}  // namespace shape

// The shape of a field's values, with bounds or words.
struct ValueForm {
  const Shape* shape = &shape::kText;
  double least = 0, most = 0;               // bounds; durations are in seconds
  std::span<const char* const> words = {};  // the first word means the value `least`

  constexpr ValueForm() = default;
  constexpr ValueForm(const Shape& s, double from = 0, double to = 0)  // NOLINT: rows state shapes
      : shape(&s), least(from), most(to) {}
  constexpr ValueForm(const Shape& s, std::span<const char* const> w, int first = 0)
      : shape(&s), least(first), words(w) {}
  bool is(const Shape& s) const noexcept { return shape == &s; }
  template <class Enum>
  constexpr Enum value_of(size_t word) const {
    return static_cast<Enum>(static_cast<int>(least) + static_cast<int>(word));
  }
  template <class Enum>
  constexpr const char* word_of(Enum value) const {
    return words[static_cast<size_t>(static_cast<int>(value) - static_cast<int>(least))];
  }
};

// Returns text such as "a whole number from 0 to 1000". `keys` are the keys that a map may have.
std::string wanted(const ValueForm& form, const std::vector<std::string>& keys = {});

// Reads 0 or 1, off or on, false or true, no or yes.
Result<bool> read_switch(std::string_view text);
// Reads `1.5s` or `500ms`. A bare number is in seconds.
std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept;
std::string print_duration(std::chrono::nanoseconds d);

using Names = std::vector<std::string>;
using Orders = decltype(Policy::per_op);
using Problems = std::vector<std::string>;

Status read_one(std::string_view text, const ValueForm& form, bool& to);
Status read_one(std::string_view text, const ValueForm& form, int64_t& to);
Status read_one(std::string_view text, const ValueForm& form, double& to);
Status read_one(std::string_view text, const ValueForm& form, std::chrono::nanoseconds& to);
Status read_one(std::string_view text, const ValueForm& form, std::string& to);
Result<size_t> read_word(std::string_view text, std::span<const char* const> words);
template <class V>
requires std::is_enum_v<V> || std::is_same_v<V, int> Status read_one(std::string_view text,
                                                                     const ValueForm& form, V& to) {
  if constexpr (std::is_enum_v<V>) {
    const auto index = read_word(text, form.words);
    if (index.ok()) to = form.value_of<V>(*index);
    return index.status();
  } else {
    int64_t value = 0;
    Status s = read_one(text, form, value);
    to = static_cast<int>(value);
    return s;
  }
}

// Reads names of vendors or globs over kernel ids, separated by ','.
Names read_list(std::string_view text, const ValueForm& form, Problems& problems);
// Reads `rms_norm=vendor|default;softmax=reference`.
Orders read_orders(std::string_view text, Problems& problems);

// The path of a value in a file, such as settings.cache or settings["b c"].
std::string child_path(std::string parent, std::string_view key);
// The keys and indices that lead to a value. Borrows the keys and the path above.
struct Path {
  const Path* up = nullptr;
  std::string_view key = {};  // null if this part is an index
  size_t index = 0;
  bool known = true;  // all keys are keys of rule files, and not names that a file contains
};
inline constexpr Path kTop;
// Returns "dispatch_rules[2].conditions". If `all` is false, returns only the known part.
std::string to_string(const Path& path, bool all = true);
// Returns "did you mean 'NAME'?" if a known name is similar, else `otherwise`.
std::string suggestion(std::string_view name, const Names& known, std::string otherwise = {});
// Like suggestion(), but lists the known names instead of `otherwise` if they are few.
std::string advice(std::string_view name, const Names& known, const std::string& otherwise);
// Returns the known name that was probably meant: only a few letters differ, and not only digits. A
// common prefix such as `vendor.` does not make names similar.
std::string_view near_miss(std::string_view name, const Names& known);
// Returns the value for messages, in quotes if it was quoted, is long or has unusual characters.
std::string shown(std::string_view text, bool quoted);

}  // namespace yard::policy
