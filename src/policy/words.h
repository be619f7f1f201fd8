// SPDX-License-Identifier: Apache-2.0
// The grammar of single values, shared by rule files and the environment. Keywords are case-insensitive. Invalid text is
// a kParse error or a problem that says what was expected.
#pragma once

#include <yard/policy.h>

#include <chrono>

#include "base/text.h"

namespace yard::policy {

// What values look like. Reader, messages and JSON Schema use these.
struct Shape {
  const char* expected = nullptr;  // in messages; null if wanted() makes it from the form
  const char* chars = nullptr;     // of text, as in [...] of a regular expression; null: any
  bool (*is)(std::string_view) noexcept = nullptr;  // what must hold of text besides
  bool many = false;                                // or a list of values
  bool ref = false;                                 // or {kernel: ID, optional: true}
  const Shape* key = nullptr;                       // of a map
  const Shape* value = nullptr;                     // of a map
};
// Whether text is a value of the shape.
bool fits(std::string_view text, const Shape& shape) noexcept;
bool has_wildcard(std::string_view text) noexcept;    // '*' or '?'
bool is_vendor_name(std::string_view text) noexcept;  // a vendor named in code may have others
bool is_function_glob(std::string_view text) noexcept;

namespace shape {

inline constexpr const char* kNameChars = "A-Za-z0-9_.-";
inline constexpr const char* kGlobChars = "A-Za-z0-9_.*?-";

inline constexpr Shape kVersion{"\"1.0\""}, kSwitch{"true or false"};
// With bounds.
inline constexpr Shape kWhole{}, kNumber{}, kDuration{};
// With words, of which one or several are meant.
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
// With the keys of a struct: a map, a list of maps, or either.
inline constexpr Shape kMap{}, kMaps{"a list of maps"}, kOneOrMaps{.many = true};
inline constexpr Shape kTokens{.expected = "default, vendor, reference, vendor:NAME or impl:ID",
                               .many = true};
inline constexpr Shape kRef{.expected = "the id of one kernel", .chars = kNameChars, .ref = true};
inline constexpr Shape kBackend{.expected = "the name of a backend", .is = is_vendor_name};
inline constexpr Shape kFunction{"a group, or a function as group/name, or a glob of such",
                                 "A-Za-z0-9_.*?/-", is_function_glob};
// Maps from names to values of another shape.
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
struct Form {
  const Shape* shape = &shape::kText;
  double least = 0, most = 0;  // of a duration in seconds; `least` of words: the value of the first
  std::span<const char* const> words = {};

  constexpr Form() = default;
  constexpr Form(const Shape& s, double from = 0, double to = 0)  // NOLINT: rows state shapes
      : shape(&s), least(from), most(to) {}
  constexpr Form(const Shape& s, std::span<const char* const> w, int first = 0)
      : shape(&s), least(first), words(w) {}
  bool is(const Shape& s) const noexcept { return shape == &s; }
  // Between enumerators and words.
  template <class Enum>
  constexpr Enum value_of(size_t word) const {
    return static_cast<Enum>(static_cast<int>(least) + static_cast<int>(word));
  }
  template <class Enum>
  constexpr const char* word_of(Enum value) const {
    return words[static_cast<size_t>(static_cast<int>(value) - static_cast<int>(least))];
  }
};

// "a whole number from 0 to 1000". `keys` are those of a map.
std::string wanted(const Form& form, const std::vector<std::string>& keys = {});

// 0 or 1, off or on, false or true, no or yes.
Result<bool> read_switch(std::string_view text);
// `1.5s`, `500ms`; a bare number is seconds. Unset if the text is not a duration.
std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept;
// The text that read_duration() reads back.
std::string print_duration(std::chrono::nanoseconds d);

using Names = std::vector<std::string>;
using Orders = decltype(Policy::per_op);
using Problems = std::vector<std::string>;

// Each reads one value.
Status read_one(std::string_view text, const Form& form, bool& to);
Status read_one(std::string_view text, const Form& form, int64_t& to);
Status read_one(std::string_view text, const Form& form, double& to);
Status read_one(std::string_view text, const Form& form, std::chrono::nanoseconds& to);
Status read_one(std::string_view text, const Form& form, std::string& to);
// The index of one of the form's words.
Result<size_t> read_word(std::string_view text, std::span<const char* const> words);
template <class V>
requires std::is_enum_v<V> || std::is_same_v<V, int> Status read_one(std::string_view text,
                                                                     const Form& form, V& to) {
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

// Names of vendors or globs over kernel ids, separated by ','.
Names read_list(std::string_view text, const Form& form, Problems& problems);
// `rms_norm=vendor|default;softmax=reference`.
Orders read_orders(std::string_view text, Problems& problems);

// The path of a value in a file: "settings.cache"; a key that is not a plain word is in quotes: settings["b c"].
std::string child_path(std::string parent, std::string_view key);
// The keys and indices that lead to a value, turned into text only for problems. Borrows all it names.
struct Path {
  const Path* up = nullptr;
  std::string_view key = {};  // null if it is an index
  size_t index = 0;
  bool known = true;  // whether all keys are those of rule files
};
inline constexpr Path kTop;
// "dispatch_rules[2].conditions.batch_size_gte". Unless `all` is set, only the part that is known.
std::string to_string(const Path& path, bool all = true);
// "did you mean 'NAME'?" for the known name that is similar, or `otherwise`.
std::string suggestion(std::string_view name, const Names& known, std::string otherwise = {});
// How messages show a value: 8, high, "in quotes".
std::string shown(std::string_view text, bool quoted);

}  // namespace yard::policy
