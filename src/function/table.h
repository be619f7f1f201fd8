// SPDX-License-Identifier: Apache-2.0
// The table of a function: what a call reads, and who is out. Immutable; freed when no call holds it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "function/candidates.h"
#include "function/implementation.h"

namespace yard::function {

struct Table : detail::FunctionTable {
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    int32_t reason = YARD_REASON_NONE;
    std::string detail;
    // Some function that chooses by the same key has none of this backend: no choice of a commit group.
    bool partial = false;
    std::optional<health::BreakerStatus> breaker;  // unless its breaker is closed

    // Open, and nothing else keeps it from running.
    bool breaker_text() const noexcept { return breaker && breaker->state == BreakerState::kOpen; }
    health::ProbeSlots* probes() const noexcept {
      return breaker ? breaker->probes.get() : nullptr;
    }
  };
  std::vector<Entry> entries;  // as candidates() gives them; the first `count` are the rows
  std::vector<const detail::FunctionRow*> list;
  std::shared_ptr<base::Counter> originals;
  bool strict = false;              // no fallback after a failure
  std::optional<size_t> fallbacks;  // at most, in one call; unset: all
  bool checked = false;

  // `before` may be null; what it has is used again.
  static std::unique_ptr<const Table> make(const Situation& situation,
                                           const detail::FunctionSite& site, const Table* before,
                                           bool checked);
  // Whether calls would notice no difference.
  bool same_as(const Table& other) const;
  // Whether calls may take the short way now. Once it is published, after each change of who is suspect.
  void settle_way() const noexcept;
};

// The table behind a pointer; null for none and for the master switch.
const Table* as_table(const detail::FunctionTable* t) noexcept;

// Puts it in force. `table` null: the master switch.
void publish(detail::FunctionSite& site, std::unique_ptr<const Table> table);
// The next call asks for a table again.
void withdraw(detail::FunctionSite& site);

}  // namespace yard::function
