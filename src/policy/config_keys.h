// SPDX-License-Identifier: Apache-2.0
// Visiting the rows of policy/config_rows.h, and merging by them.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "policy/config_rows.h"

namespace yard::policy {

template <class Rows, class F>
constexpr void visit_rows(const Rows& rows, F f) {
  std::apply([&](const auto&... row) { (f(row), ...); }, rows);
}
// Only the rows that have a member.
template <class T, class F>
constexpr void visit_fields(F f) {
  visit_rows(kFields<T>, [&](const auto& row) {
    if constexpr (requires { row.member; }) f(row);
  });
}

inline std::vector<std::string> names_of(Keys keys) {
  std::vector<std::string> names;
  for (const Key* key : keys)
    if (key->section == nullptr) names.emplace_back(key->name);
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
