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

enum class Shape : uint8_t {
  kVersion,
  kSwitch,
  kWhole,        // from `least` to `most`
  kNumber,       // the same
  kDuration,     // the same, in seconds
  kWord,         // one of `words`; the first has the value `least`
  kMode,         // name of a mode
  kModes,        // of `words`, one or a list
  kText,         //
  kLevels,       // levels of loggers
  kPath,         // of a file
  kFolder,       // path of a folder
  kPaths,        // one or a list
  kOpGlob,       // op or glob over ops
  kKernel,       // id or glob over ids
  kOneKernel,    // reference or an id
  kKernels,      // ids, one or a list
  kGlobs,        // ids or globs, one or a list
  kVendors,      // names, one or a list
  kNames,        // of backends, one or a list
  kLabelNames,   // one or a list
  kOpKernel,     // map: op or glob → id
  kOneOpKernel,  // map: op → id
  kOpKernels,    // map: op or glob → ids
  kOpOrders,     // map: op → tokens
  kOpModes,      // map: op or glob → mode
  kSwitches,     // map: backend → switch
  kOpSwitches,   // map: op or glob → switch
  kLabels,       // map: label → text
  kConditions,   // map: field and operator → value or list
  kFunctions,    // map: group or group/function, or globs → map
  kMap,          // with the keys of a struct
  kMaps,         // a list of such
  kOneOrMaps,    // one or a list of such
};

// What a value looks like.
struct Form {
  Shape shape = Shape::kText;
  double least = 0, most = 0;
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

// How messages show a value: 8, high, "in quotes".
std::string shown(std::string_view text, bool quoted);

}  // namespace yard::policy
