// SPDX-License-Identifier: Apache-2.0
// The grammar of single values, shared by rule files and the environment. Keywords are case-insensitive. Invalid text
// is reported with what was expected: as kParse, or in a list of problems; then the result is meaningless.
#pragma once

#include <yard/policy.h>
#include <yard/status.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/text.h"

namespace yard::policy {

// Whether text has the form of a name.
bool is_vendor_name(std::string_view text) noexcept;    // a vendor named in code may have others
bool is_op_name(std::string_view text) noexcept;        // lower-case letters, digits, '_', '.'
bool is_op_glob(std::string_view text) noexcept;        // with '*' and '?' besides
bool is_kernel_glob(std::string_view text) noexcept;    // with '*' and '?'
bool is_kernel_id(std::string_view text) noexcept;      // without these
bool is_function_glob(std::string_view text) noexcept;  // a group, or group/function, or a glob
bool is_path(std::string_view text) noexcept;
bool has_wildcard(std::string_view text) noexcept;  // '*' or '?'

// What the keys of a map may be.
struct MapKey {
  bool (*is)(std::string_view) noexcept;  // null if any text is a key
  const char* pattern;                    // for JSON Schema
  const char* expected = "";              // in messages
  bool quoted = false;                    // in messages
};

// What values look like. Reader, messages and JSON Schema use these.
struct Shape {
  const char* expected = nullptr;  // in messages; null if wanted() makes it from the form
  const char* json = nullptr;      // JSON Schema of one value; null if it is made from the form
  bool (*is)(std::string_view) noexcept = nullptr;  // whether text is such a value; null: any is
  bool many = false;                                // or a list of values
  const MapKey* key = nullptr;                      // of a map, else null
  const Shape* value = nullptr;                     // of the values of a map
};

namespace shape {

inline constexpr const char* kBooleanJson = R"("type": "boolean")";
inline constexpr const char* kTextJson = R"("type": "string", "minLength": 1)";
inline constexpr const char* kNameJson = R"("type": "string", "pattern": "^[A-Za-z0-9_.-]+$")";
inline constexpr const char* kOpJson = R"("type": "string", "pattern": "^[a-z0-9_.*?]+$")";
inline constexpr const char* kGlobJson = R"("type": "string", "pattern": "^[A-Za-z0-9_.*?-]+$")";
inline constexpr const char* kIdRefJson =
    R"("anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"}, {"$ref": "#/$defs/optional_kernel"}])";
inline constexpr const char* kGlobRefJson =
    R"("anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_.*?-]+$"}, {"$ref": "#/$defs/optional_kernel"}])";

inline constexpr const char* kOpText = "the name of an op or a glob as attention.*";
inline constexpr MapKey kOneOpKey{is_op_name, "^[a-z0-9_.]+$", "the name of one op"};
inline constexpr MapKey kOpKey{is_op_glob, "^[a-z0-9_.*?]+$", kOpText};
inline constexpr MapKey kBackendKey{is_vendor_name, "", "the name of a backend", true};
inline constexpr MapKey kLabelKey{nullptr, ""};
inline constexpr MapKey kFunctionKey{is_function_glob, "^[A-Za-z0-9_.*?-]+(/[A-Za-z0-9_.*?-]+)?$",
                                     "a group, or a function as group/name, or a glob of such"};

inline constexpr Shape kVersion{"\"1.0\"", R"("enum": ["1.0", "1", 1.0, 1])"};
inline constexpr Shape kSwitch{"true or false", kBooleanJson};
// With bounds.
inline constexpr Shape kWhole{}, kNumber{}, kDuration{};
// With words, of which one or several are meant.
inline constexpr Shape kWord{}, kWords{.many = true};
inline constexpr Shape kMode{"auto, static, dynamic, config, hot_reload or a mode of the program",
                             kNameJson, base::is_bare_word};
inline constexpr Shape kText{"text", kTextJson}, kLevels{"levels of loggers", kTextJson};
inline constexpr Shape kPath{"the path of a file", kTextJson, is_path};
inline constexpr Shape kFolder{"the path of a folder", kTextJson, is_path};
inline constexpr Shape kPaths{"a path or a list of paths", kTextJson, is_path, true};
inline constexpr Shape kOp{kOpText, kOpJson, is_op_glob};
inline constexpr Shape kKernel{"the id of a kernel or a glob as vendor.*", kGlobJson,
                               is_kernel_glob};
inline constexpr Shape kOneKernel{"reference, or the id of one kernel", kNameJson, is_kernel_id};
inline constexpr Shape kKernels{"the id of a kernel or a list of ids", kIdRefJson, is_kernel_glob,
                                true};
inline constexpr Shape kGlobs{"ids or globs of kernels", kGlobRefJson, is_kernel_glob, true};
inline constexpr Shape kVendors{"names of vendors", kTextJson, is_vendor_name, true};
inline constexpr Shape kBackends{"names of backends", kNameJson, base::is_bare_word, true};
inline constexpr Shape kLabelNames{"names of labels", kNameJson, base::is_bare_word, true};
inline constexpr Shape kConditions{"a map from fields to values",
                                   R"("$ref": "#/$defs/conditions")"};
// With the keys of a struct: a map, a list of maps, or either.
inline constexpr Shape kMap{}, kMaps{"a list of maps"}, kOneOrMaps{.many = true};
inline constexpr Shape kRef{"the id of a kernel or a glob as vendor.*", kIdRefJson, is_kernel_glob};
inline constexpr Shape kTokens{
    "default, vendor, reference, vendor:NAME or impl:ID", kTextJson, {}, true};
// Maps from names to values of another shape.
constexpr Shape map_of(const char* expected, const MapKey& key, const Shape& value) {
  return {.expected = expected, .key = &key, .value = &value};
}
inline constexpr Shape kOpKernel = map_of("a map from ops to ids of kernels", kOpKey, kRef);
inline constexpr Shape kOneOpKernel = map_of("a map from ops to ids of kernels", kOneOpKey, kRef);
inline constexpr Shape kOpKernels = map_of("a map from ops to lists of kernels", kOpKey, kKernels);
inline constexpr Shape kOpOrders = map_of("a map from ops to lists of tokens", kOneOpKey, kTokens);
inline constexpr Shape kOpModes = map_of("a map from ops to modes", kOpKey, kMode);
inline constexpr Shape kSwitches =
    map_of("a map from backends to true or false", kBackendKey, kSwitch);
inline constexpr Shape kOpSwitches = map_of("a map from ops to true or false", kOpKey, kSwitch);
inline constexpr Shape kLabels = map_of("a map from labels to texts", kLabelKey, kText);
inline constexpr Shape kFunctions =
    map_of("a map from groups or functions to maps", kFunctionKey, kMap);

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

// "a whole number from 0 to 1000". `keys`: of a map.
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

// Each reads one value. An error says what was expected. Texts are words, tokens of an order or whatever the shape says.
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
// "did you mean 'NAMErest'?" for the known name that is similar, or `otherwise`.
std::string suggestion(std::string_view name, const Names& known, std::string otherwise = {},
                       std::string_view rest = {});
// How messages show a value: 8, high, "in quotes".
std::string shown(std::string_view text, bool quoted);

}  // namespace yard::policy
