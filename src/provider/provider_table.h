// SPDX-License-Identifier: Apache-2.0
// The table of a function, which its calls read, and the implementations that it lists.
//
// A table is immutable, and freed when no call holds it. An implementation is made once per record and function, and
// shared by the tables that list it. When the last one is freed, calls may still run it: it is retired, and freed when
// no call holds it.
#pragma once

#include <yard/detail/function.h>
#include <yard/function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/counters.h"
#include "provider/eligibility.h"
#include "registry/records.h"

namespace yard::provider {

// One backend's implementation of one function, with its counters of runs and failures.
struct Implementation : detail::FunctionRow {
  static std::shared_ptr<const Implementation> make(std::shared_ptr<const registry::Hook> hook);

  const std::shared_ptr<const registry::Hook> hook;
  base::Counter runs, failures;

  // Its last calls failed: the next success is reported to health.
  mutable std::atomic<bool> suspect{false};

  bool fails_before_writing() const noexcept {
    return (hook->d.flags & YARD_HOOK_FAILS_BEFORE_WRITING) != 0;
  }

  // Logs the reason of a refusal the first time it is given, for up to kReasons reasons.
  void refused(const yard_verdict_t& v) const;
  // Logs that the verifier threw.
  void broken(const std::string& text) const;

  // False: one of its own numbers, beyond its list of texts.
  bool has_text(int32_t reason) const noexcept;
  std::string text_of(int32_t reason, const int64_t figures[3]) const;

 private:
  explicit Implementation(std::shared_ptr<const registry::Hook> h);
  static void retire(const Implementation* i) noexcept;

  static constexpr size_t kReasons = 16;
  mutable std::atomic<int32_t> logged_[kReasons]{};  // reasons; 0 where there is none yet
};

// What a call reads, and the providers that are out.
struct ProviderTable : detail::FunctionTable {
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    Eligibility eligibility;
  };
  std::vector<Entry> entries;  // as function_providers() gives them; the first `count` are the rows
  std::vector<const detail::FunctionRow*> list;
  std::shared_ptr<base::Counter> originals;
  bool strict = false;              // no fallback after a failure
  std::optional<size_t> fallbacks;  // at most, in one call; unset: all

  // Implementations and counters are taken over from `before`, which may be null.
  static std::unique_ptr<const ProviderTable> make(const Situation& situation,
                                                   const detail::FunctionSite& site,
                                                   const ProviderTable* before);
  // Whether calls would see no difference.
  bool same_as(const ProviderTable& other) const;
  // Recomputes `plain`: once the table is published, and after each change of an implementation's `suspect`.
  void update_plain() const noexcept;
};

// The table behind a pointer; null for none and for the master switch.
const ProviderTable* as_table(const detail::FunctionTable* t) noexcept;

// Replaces the table of the site. `table` null: the master switch.
void publish(detail::FunctionSite& site, std::unique_ptr<const ProviderTable> table);
// Adds the table for scopes of that number, which has none. `table` null: the master switch.
void publish(detail::FunctionSite& site, uint64_t scope,
             std::shared_ptr<const ProviderTable> table);
// Calls in scopes make new tables.
void withdraw_scoped(detail::FunctionSite& site);
// The next call of the site makes a new table.
void withdraw(detail::FunctionSite& site);
// Recomputes `plain` of all tables of the site.
void update_plain(const detail::FunctionSite& site);

// The answer of a verifier.
struct Answer {
  bool accepted = false;
  yard_verdict_t verdict{};
  std::string broken;  // what is wrong with the verifier; empty: nothing
};

// An implementation without a verifier accepts.
Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args);
// Twice on this thread, then on two other threads at once. Different answers, and a reason without a text, make the
// verifier broken.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args);

}  // namespace yard::provider
