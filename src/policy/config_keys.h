// SPDX-License-Identifier: Apache-2.0
// Visiting the rows of policy/config_rows.h, and merging by them.
#pragma once

#include "base/lists.h"
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

template <class M>
bool is_set(const M& value) {
  if constexpr (IsOptional<M>)
    return value.has_value();
  else
    return !value.empty();
}

// Adds to `strong` what `weak` sets and `strong` does not. Structs are merged field by field and maps key by key. Rules are
// appended, names are added unless they are there already. Takes `weak` apart.
template <HasFields T>
void merge_weaker(T& strong, T& weak);

template <class M>
void merge_value(M& strong, M& weak) {
  if constexpr (HasFields<M>) {
    merge_weaker(strong, weak);
  } else if constexpr (IsMap<M>) {
    if constexpr (HasFields<Part<M>>)
      for (auto& [key, value] : weak)
        if (const auto it = strong.find(key); it != strong.end()) merge_weaker(it->second, value);
    strong.merge(weak);
  } else if constexpr (!IsList<M>) {
    if (!is_set(strong)) strong = std::move(weak);
  } else if constexpr (HasFields<Part<M>>) {
    std::move(weak.begin(), weak.end(), std::back_inserter(strong));
  } else if constexpr (std::is_same_v<Part<M>, KernelRef>) {
    for (KernelRef& ref : weak)
      if (std::ranges::find(strong, ref.id, &KernelRef::id) == strong.end())
        strong.push_back(std::move(ref));
  } else {
    std::swap(strong, weak);  // names are listed weakest source first
    for (auto& name : weak)
      if (!base::contains(strong, name)) strong.push_back(std::move(name));
  }
}

template <HasFields T>
void merge_weaker(T& strong, T& weak) {
  visit_fields<T>([&](const auto& row) {
    auto &ours = strong.*row.member, &theirs = weak.*row.member;
    if constexpr (requires { theirs.clear(); })
      if (row.replaces && is_set(ours)) theirs.clear();
    merge_value(ours, theirs);
  });
}

}  // namespace yard::policy
