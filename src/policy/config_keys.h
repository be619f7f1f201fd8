// SPDX-License-Identifier: Apache-2.0
// The keys of a rule file, in one set of tables: the reader, the JSON Schema, the printer and the docs are
// made from, or held against, these rows.
#pragma once

#include <yard/config.h>

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace yard::policy {

// What a value looks like.
enum class Shape : uint8_t {
  kVersion,
  kSwitch,
  kWhole,       // from `least` to `most`
  kNumber,      // the same
  kDuration,    // the same, in seconds
  kWord,        // one of `words`
  kMode,        // a mode's name
  kText,        //
  kPath,        // of a file
  kFolder,      // path of a folder
  kPaths,       // one or a list
  kOpGlob,      // op or glob over ops
  kKernel,      // id or glob over ids
  kKernels,     // ids, one or a list
  kGlobs,       // ids or globs, one or a list
  kVendors,     // names, one or a list
  kOpKernel,    // map: op or glob → id
  kOpKernels,   // map: op or glob → ids
  kOpOrders,    // map: op → tokens
  kOpModes,     // map: op or glob → mode
  kSwitches,    // map: name → switch
  kConditions,  // map: field and operator → value or list
  kFunctions,   // map: group or group/function, or globs → map with the keys `inner`
  kNames,       // of backends, a list
  kLabels,      // map: label → text
  kMap,         // with the keys `inner`
  kMaps,        // a list of such
  kOneOrMaps,   // one or a list of such
};

// Where a setting is kept.
template <class... T>
using SetOf = std::variant<std::optional<T>*...>;
using SettingAt = SetOf<bool, int64_t, double, std::chrono::nanoseconds, std::string,
                        std::vector<std::string>, Watch, PluginProbe>;

struct Key {
  const char* name;
  Shape shape;
  const char* meaning;  // one sentence, for docs and editors
  double least = 0, most = 0;
  std::span<const char* const> words = {};
  std::span<const Key> inner = {};
  SettingAt (*at)(ConfigSettings&) = nullptr;  // of a setting
  const char* fallback = "";                   // the default, for docs; empty: none
  bool required = false;
};

std::span<const Key> root_keys() noexcept;
std::span<const Key> rule_keys() noexcept;
std::span<const Key> score_keys() noexcept;
std::span<const Key> function_keys() noexcept;
std::span<const Key> canary_keys() noexcept;
std::span<const Key> defaults_keys() noexcept;
std::span<const Key> policy_keys() noexcept;
std::span<const Key> settings_keys() noexcept;

const Key* find_key(std::span<const Key> keys, std::string_view name) noexcept;
std::vector<std::string> names_of(std::span<const Key> keys);
// "a whole number from 0 to 1000": what was expected.
std::string wanted(const Key& key);

// `1.5s`, `500ms`; a bare number is seconds. Nothing if it is no duration.
std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept;
// The same text read_duration() reads back.
std::string print_duration(std::chrono::nanoseconds d);

inline constexpr int kDefaultPriority = 50, kMostPriority = 1000;
inline constexpr const char* kConfigVersion = "1.0";

// The name of a mode: letters, digits, '_', '-', '.'.
bool is_mode_name(std::string_view text) noexcept;
// The name of an op with '*' and '?' besides.
bool is_op_glob(std::string_view text) noexcept;
// A group of functions, or group/function, with '*' and '?' besides.
bool is_function_glob(std::string_view text) noexcept;
// Whether it has a '*' or '?'.
bool has_wildcard(std::string_view text) noexcept;

}  // namespace yard::policy
