// SPDX-License-Identifier: Apache-2.0
// What the rows of the tables mean in words, and how times are written.
#include "policy/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/yaml.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

struct Unit {
  const char* name;
  double ns;
};
constexpr Unit kUnits[] = {{"h", 3600e9}, {"m", 60e9}, {"s", 1e9},
                           {"ms", 1e6},   {"us", 1e3}, {"ns", 1}};

std::string bounds(const Key& key) {
  const auto text = [](double v) { return fmt::format("{}", v); };
  if (key.shape == Shape::kDuration)
    return fmt::format("from {} to {}", print_duration(*read_duration(text(key.least))),
                       print_duration(*read_duration(text(key.most))));
  if (key.shape == Shape::kWhole)
    return fmt::format("from {} to {}", static_cast<int64_t>(key.least),
                       static_cast<int64_t>(key.most));
  return fmt::format("from {} to {}", text(key.least), text(key.most));
}

}  // namespace

const Key* find_key(std::span<const Key> keys, std::string_view name) noexcept {
  for (const Key& k : keys)
    if (name == k.name) return &k;
  return nullptr;
}

std::vector<std::string> names_of(std::span<const Key> keys) {
  std::vector<std::string> names;
  for (const Key& k : keys) names.emplace_back(k.name);
  return names;
}

std::string wanted(const Key& key) {
  switch (key.shape) {
    case Shape::kVersion: return "\"1.0\"";
    case Shape::kSwitch: return "true or false";
    case Shape::kWhole: return "a whole number " + bounds(key);
    case Shape::kNumber: return "a number " + bounds(key);
    case Shape::kDuration: return "a time as 500ms or 30s, " + bounds(key);
    case Shape::kWord: return base::one_of({key.words.begin(), key.words.end()});
    case Shape::kMode: return "auto, static, dynamic, config, hot_reload or a mode of the program";
    case Shape::kText: return "text";
    case Shape::kPath: return "the path of a file";
    case Shape::kFolder: return "the path of a folder";
    case Shape::kPaths: return "a path or a list of paths";
    case Shape::kOpGlob: return "the name of an op or a glob as attention.*";
    case Shape::kKernel: return "the id of a kernel or a glob as vendor.*";
    case Shape::kKernels: return "the id of a kernel or a list of ids";
    case Shape::kGlobs: return "ids or globs of kernels";
    case Shape::kVendors: return "names of vendors";
    case Shape::kOpKernel: return "a map from ops to ids of kernels";
    case Shape::kOpKernels: return "a map from ops to lists of kernels";
    case Shape::kOpOrders: return "a map from ops to lists of tokens";
    case Shape::kOpModes: return "a map from ops to modes";
    case Shape::kSwitches: return "a map from backends to true or false";
    case Shape::kConditions: return "a map from fields to values";
    case Shape::kFunctions: return "a map from groups or functions to maps";
    case Shape::kNames: return "names of backends";
    case Shape::kLabels: return "a map from labels to texts";
    case Shape::kMap: return "a map with " + base::one_of(names_of(key.inner));
    case Shape::kMaps: return "a list of maps";
    case Shape::kOneOrMaps:
      return "a map with " + base::one_of(names_of(key.inner)) + ", or a list of such";
  }
  return "something else";
}

std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept {
  double unit = 1e9;
  for (const Unit& u : kUnits) {
    const std::string_view name = u.name;
    if (!text.ends_with(name)) continue;
    const std::string_view head = base::trim(text.substr(0, text.size() - name.size()));
    if (!base::yaml_number(head)) continue;  // "ms" also ends with "s"
    unit = u.ns;
    text = head;
    break;
  }
  const auto number = base::yaml_number(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  const double ns = std::round(*number * unit);
  if (std::abs(ns) > 9e18) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

std::string print_duration(std::chrono::nanoseconds d) {
  for (const Unit& u : {Unit{"s", 1e9}, Unit{"ms", 1e6}, Unit{"us", 1e3}}) {
    const auto whole = static_cast<int64_t>(u.ns);
    if (d.count() % whole == 0) return fmt::format("{}{}", d.count() / whole, u.name);
  }
  return fmt::format("{}ns", d.count());
}

bool is_mode_name(std::string_view text) noexcept { return base::is_bare_word(text); }

bool is_op_glob(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_op_name({&c, 1}) || c == '*' || c == '?';
  });
}

bool is_function_glob(std::string_view text) noexcept {
  const size_t slash = text.find('/');
  const auto good = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return base::is_bare_word({&c, 1}) || c == '*' || c == '?';
    });
  };
  return good(text.substr(0, slash)) && (slash == text.npos || good(text.substr(slash + 1)));
}

bool has_wildcard(std::string_view text) noexcept {
  return text.find_first_of("*?") != std::string_view::npos;
}

}  // namespace yard::policy
