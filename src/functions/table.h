// SPDX-License-Identifier: Apache-2.0
// The table of a function: its implementations in the order of calls, and why some are out. Tables belong to a snapshot and are
// immutable. An implementation is made once per record and shared by the tables that list it. It is retired when its last table
// ends, and freed when no call holds it.
#pragma once

#include <yard/function.h>

#include <climits>
#include <tuple>

#include "base/append_list.h"
#include "base/counters.h"
#include "base/reclaimer.h"
#include "dispatch/scope.h"
#include "dispatch/snapshot.h"

namespace yard::functions {

using namespace detail;

// All functions that the program ever declared, in the order of FunctionSite::index.
extern base::AppendList<FunctionSite> g_sites;
// The sites for which Function objects exist now: those of one function, or all if there is no name.
std::vector<FunctionSite*> declared_sites(std::string_view group = {}, std::string_view name = {});

using Activations = std::vector<FunctionActivation>;  // in their order

// What decides about functions.
struct Situation {
  const dispatch::Snapshot& snapshot;
  const yard_host_t* host;
  const Activations activations;
  const ScopeContent* scope = nullptr;
  const Policy policy = scope != nullptr ? merge(snapshot.policy->in_force, scope->policy)
                                         : snapshot.policy->in_force;
  // The master switch: every call runs the default.
  bool off() const { return policy.reference_only.value_or(false); }
};

struct Eligibility {
  int32_t reason = YARD_REASON_NONE;
  std::string text = {};                              // of the reason, unless it is an open breaker
  std::optional<health::BreakerStatus> breaker = {};  // unset if it is closed

  bool eligible() const noexcept { return reason == YARD_REASON_NONE; }
  // The slots of a half-open breaker, else null. A call enters one before the implementation runs.
  std::shared_ptr<health::ProbeSlots> probes() const noexcept {
    return breaker ? breaker->probes : nullptr;
  }
  // Why it is out, or the state of a breaker that is not closed, as of now.
  std::string why() const;
};

// The record of a backend, or a default one: a backend that only provides functions may have none.
std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name);
// Whether policy allows and enables the backend, and this process may use it after fork(). Runs no code of the backend.
Eligibility by_policy(const Situation& situation, const registry::Backend& backend);
// Whether the backend is available on the device, and the device is not lost. A device with index -1 stands for all of its
// type: the first one is probed. May run the probe of the backend.
Eligibility on_device(const Situation& situation, const registry::Backend& backend, Device device);

// The key of an implementation in health: the function is the op, the backend the kernel.
health::Key health_key(const registry::Function& implementation);

// One backend's implementation of one function, with its counters.
struct Implementation : FunctionRow {
  static std::shared_ptr<const Implementation> make(
      std::shared_ptr<const registry::Function> record);

  std::shared_ptr<const registry::Function> record;
  int priority = 0;                           // higher comes first
  base::Counter successes, thrown, failures;  // of what was thrown, some are failures
  std::unique_ptr<base::Retired> retired;     // for when it is retired
  // The reasons of refusals that have been logged, 0 where there is none yet. Later ones are not logged.
  mutable std::atomic<int32_t> logged[16]{};

  void log_broken_verifier(const std::string& text) const;
  // The text of a reason that is not in the catalogue; null if there is none.
  const char* own_text(int32_t reason) const noexcept;
  std::string text_of(const yard_verdict_t& v) const;
};

struct Table : FunctionTable {
  // Where an entry stands in the order of calls. Among equal places the name of the backend decides. kOut comes last.
  using Place = std::tuple<int, int, int>;
  static constexpr Place kOut{INT_MAX, 0, 0};
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    Eligibility eligibility;
    Place place = kOut;
  };
  std::vector<Entry> entries;            // the eligible ones in the order of calls, then the others
  std::vector<const FunctionRow*> list;  // the eligible ones: FunctionTable::rows
  std::shared_ptr<base::Counter> originals;

  // Takes over implementations and counters from `before`, which may be null. May run probes.
  static std::unique_ptr<const Table> make(const Situation& situation, const FunctionSite& site,
                                           const Table* before);
};

// The tables of a snapshot: one for each site, and those for scopes, which calls add when they need them.
struct SnapshotTables {
  std::vector<std::unique_ptr<const Table>> tables;  // by FunctionSite::index; null if not made
  std::vector<const FunctionTable*> list;            // the same
  struct Scoped {
    uint32_t site;
    uint64_t scope;  // ScopeState::providers
    std::unique_ptr<const Table> table;
    Scoped* next = nullptr;
  };
  static constexpr uint32_t kMostScoped = 256;
  mutable base::OwnedAppendList<Scoped> scoped;

  // Null if there is none yet. Scope 0 stands for calls outside of scopes.
  const Table* find(const FunctionSite& site, uint64_t scope = 0) const noexcept;
  // Null if no table was made for the snapshot.
  static const SnapshotTables* of(const dispatch::Snapshot& snapshot) noexcept {
    return static_cast<const SnapshotTables*>(snapshot.functions.get());
  }
};

// The table that a call of this thread reads, protected by `guard` together with its snapshot; null if it is not made yet.
const Table* find_table(const FunctionSite& site, const ThreadHead& thread, Guard& guard) noexcept;

// The error of a yard::Error that is being handled; a fault with the text of any other exception.
Status status_of_exception();

// The answer of a verifier.
struct Answer {
  yard_verdict_t verdict{};
  std::string broken = {};  // what is wrong with the verifier; then the reason is VERIFIER_BROKEN

  bool accepted() const noexcept { return verdict.reason == YARD_REASON_NONE; }
};
Answer ask_once(const Implementation& i, const ThreadHead& thread, const FunctionArgs& args);
// Asks the verifier about a call. The verdict is "able" if the call could run it.
FunctionCandidate explain_entry(const Table::Entry& e, const ThreadHead& thread,
                                const FunctionArgs& args);

}  // namespace yard::functions
