// SPDX-License-Identifier: Apache-2.0
// Visiting the rows of policy/config_rows.h, and merging by them.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "policy/config_rows.h"

namespace yard::policy {

template <class T>
concept HasFields = !std::is_same_v<decltype(kFields<T>), const std::nullptr_t>;

// Of containers: the value, item or mapped type.
template <class M>
struct PartOf {
  using Type = void;
  static constexpr bool is_optional = false, is_list = false, is_map = false;
};
template <class V>
struct PartOf<std::optional<V>> : PartOf<void> {
  using Type = V;
  static constexpr bool is_optional = true;
};
template <class V>
struct PartOf<std::vector<V>> : PartOf<void> {
  using Type = V;
  static constexpr bool is_list = true;
};
template <class V>
struct PartOf<std::map<std::string, V, std::less<>>> : PartOf<void> {
  using Type = V;
  static constexpr bool is_map = true;
};
template <class M>
using Part = typename PartOf<M>::Type;
template <class M>
concept IsOptional = PartOf<M>::is_optional;
template <class M>
concept IsList = PartOf<M>::is_list;
template <class M>
concept IsMap = PartOf<M>::is_map;
template <class M>
concept IsEnum = std::is_enum_v<M>;

template <class Rows, class F>
constexpr void visit_rows(const Rows& rows, F f) {
  std::apply([&](const auto&... row) { (f(row), ...); }, rows);
}
// Calls f(row) for every row of a struct that has a member.
template <class T, class F>
constexpr void visit_fields(F f) {
  visit_rows(kFields<T>, [&](const auto& row) {
    if constexpr (requires { row.member; }) f(row);
  });
}

// The rows of the maps that a value consists of.
inline constexpr std::tuple<> kNoRows{};
template <class Row>
constexpr const auto& inner_rows(const Row& row) {
  if constexpr (requires { row.fields; }) {
    return row.fields;
  } else if constexpr (requires { row.member; }) {
    using M = typename Row::Type;
    if constexpr (HasFields<M>)
      return kFields<M>;
    else if constexpr (HasFields<Part<M>>)
      return kFields<Part<M>>;
    else
      return kNoRows;
  } else {
    return kNoRows;
  }
}

// Rows for code that needs no member: it is compiled once, what visit_rows() calls once for each row.
struct KeyRow {
  const Key* key;
  std::span<const KeyRow> inner;  // see inner_rows()
};
using KeyRows = std::span<const KeyRow>;

// `rows`: the only object of its type, which is never destroyed.
template <class Rows>
KeyRows keys_of(const Rows& rows) {
  static constinit std::array<KeyRow, std::tuple_size_v<Rows>> all{};
  static constinit std::once_flag
      once;  // usable after a fork in the middle, unlike a function's static
  std::call_once(once, [&] {
    all = std::apply(
        [](const auto&... row) {
          return std::array<KeyRow, sizeof...(row)>{KeyRow{&row, keys_of(inner_rows(row))}...};
        },
        rows);
  });
  return all;
}

// Names of the keys in rule files.
inline std::vector<std::string> names_of(KeyRows rows) {
  std::vector<std::string> names;
  for (const KeyRow& row : rows)
    if (row.key->section == nullptr) names.emplace_back(row.key->name);
  return names;
}

// How two values of a member become one.
template <class T, class M>
constexpr Merge merge_of(const Field<T, M>& row) {
  if (row.merge) return *row.merge;
  if (!IsList<M>) return Merge::kReplace;
  return HasFields<Part<M>> ? Merge::kAppend : Merge::kAdd;
}

template <class M>
bool is_set(const M& value) {
  if constexpr (IsOptional<M>)
    return value.has_value();
  else
    return !value.empty();
}

// Adds to `strong` what `weak` sets and `strong` does not, by the rows' merge rules. Takes `weak` apart.
template <HasFields T>
void merge_weaker(T& strong, T& weak);

template <class M>
void merge_value(M& strong, M& weak, Merge how) {
  if constexpr (HasFields<M>) {
    merge_weaker(strong, weak);
  } else if constexpr (IsMap<M>) {
    if constexpr (HasFields<Part<M>>)
      for (auto& [key, value] : weak)
        if (const auto it = strong.find(key); it != strong.end()) merge_weaker(it->second, value);
    strong.merge(weak);
  } else if (how == Merge::kReplace) {
    if (!is_set(strong)) strong = std::move(weak);
  } else if constexpr (IsList<M>) {
    const auto is_in = [](const M& list, const auto& item) {
      for (const auto& other : list)
        if constexpr (std::is_same_v<Part<M>, KernelRef>) {
          if (other.id == item.id) return true;
        } else if (other == item) {
          return true;
        }
      return false;
    };
    // Names are listed weakest source first; what has a place in a file, strongest first.
    constexpr bool kWeakFirst = std::is_same_v<M, std::vector<std::string>>;
    if (kWeakFirst) std::swap(strong, weak);
    for (auto& item : weak)
      if (how == Merge::kAppend || !is_in(strong, item)) strong.push_back(std::move(item));
  }
}

template <HasFields T>
void merge_weaker(T& strong, T& weak) {
  visit_fields<T>(
      [&](const auto& row) { merge_value(strong.*row.member, weak.*row.member, merge_of(row)); });
}

}  // namespace yard::policy
