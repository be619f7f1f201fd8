// SPDX-License-Identifier: Apache-2.0
// The table of a function: what a call reads, and the providers that are out. Immutable; freed when no call holds it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "provider/eligibility.h"
#include "provider/implementation.h"

namespace yard::provider {

struct ProviderTable : detail::FunctionTable {
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    Eligibility eligibility;
    // The backend cannot run all functions with the same choice key: commit groups do not choose it.
    bool partial = false;
  };
  std::vector<Entry> entries;  // as function_providers() gives them; the first `count` are the rows
  std::vector<const detail::FunctionRow*> list;
  std::shared_ptr<base::Counter> originals;
  bool strict = false;              // no fallback after a failure
  std::optional<size_t> fallbacks;  // at most, in one call; unset: all
  bool checked = false;             // verifiers are checked on every call

  // Implementations and counters are taken over from `before`, which may be null.
  static std::unique_ptr<const ProviderTable> make(const Situation& situation,
                                                   const detail::FunctionSite& site,
                                                   const ProviderTable* before, bool checked);
  // Whether calls would see no difference.
  bool same_as(const ProviderTable& other) const;
  // Recomputes `plain`: once the table is published, and after each change of an implementation's `suspect`.
  void update_plain() const noexcept;
};

// The table behind a pointer; null for none and for the master switch.
const ProviderTable* as_table(const detail::FunctionTable* t) noexcept;

// Replaces the table of the site. `table` null: the master switch.
void publish(detail::FunctionSite& site, std::unique_ptr<const ProviderTable> table);
// The next call of the site makes a new table.
void withdraw(detail::FunctionSite& site);

}  // namespace yard::provider
