// SPDX-License-Identifier: Apache-2.0
// A Table lists the implementations of one function in the order of calls, and says why some are
// out. Tables belong to a snapshot and are immutable. An Implementation is made once per record,
// shared by its tables, retired with the last of them, and freed when no call holds it.
#pragma once

#include <yard/function.h>

#include <climits>

#include "dispatch/snapshot.h"

namespace yard::functions {

using namespace detail;

// Holds every function that the program has ever declared, in the order of FunctionSite::index.
extern base::AppendList<FunctionSite> g_sites;
// Returns the sites that have a Function object now. An empty name selects all functions.
std::vector<FunctionSite*> declared_sites(std::string_view group = {}, std::string_view name = {});

using Activations = std::vector<FunctionActivation>;  // in the order of activation

struct Situation {
  const dispatch::Snapshot& snapshot;
  const yard_host_t* host;
  const Activations activations;
  const ScopeState* scope = nullptr;
  const Policy policy = scope != nullptr ? merge(snapshot.policy->in_force, scope->content.policy)
                                         : snapshot.policy->in_force;
  // The master switch makes every call run the default.
  bool off() const { return policy.reference_only.value_or(false); }
};

struct Eligibility {
  int32_t reason = YARD_REASON_NONE;
  std::string text = {};  // explains the reason; empty if a breaker is open
  std::optional<health::BreakerStatus> breaker = {};  // unset if the breaker is closed

  bool eligible() const noexcept { return reason == YARD_REASON_NONE; }
  // Null unless the breaker is half-open. Then a call must enter before the implementation runs.
  std::shared_ptr<health::ProbeSlots> probes() const noexcept {
    return breaker ? breaker->probes : nullptr;
  }
  std::string why() const;
};

// Returns a default record if the backend only provides functions and has no record.
std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name);
// Checks policy, and whether a forked child may use the backend. Runs no code of the backend.
Eligibility by_policy(const Situation& situation, const registry::Backend& backend);
// Checks that the backend is available on the device, which may run its probe, and that the device
// is not lost. Index -1 stands for all devices of the type, of which the first is probed.
Eligibility on_device(const Situation& situation, const registry::Backend& backend, Device device);

// In health, the function takes the place of the op, and the backend the place of the kernel.
health::Key health_key(const registry::Function& implementation);

struct Implementation : FunctionRow {
  static std::shared_ptr<const Implementation> make(
      std::shared_ptr<const registry::Function> record);

  std::shared_ptr<const registry::Function> record;
  int priority = 0;                           // higher comes first
  base::Counter successes, thrown, failures;  // `thrown` includes `failures`
  std::unique_ptr<base::Retired> retired;     // made early, so that retiring allocates nothing
  // Each reason of a refusal is logged once, up to 16 reasons. Zero marks a free place.
  mutable std::atomic<int32_t> logged[16]{};

  void log_broken_verifier(const std::string& text) const;
  // Returns null if the reason is in the catalogue or has no text.
  const char* own_text(int32_t reason) const noexcept;
  std::string text_of(const yard_verdict_t& v) const;
};

struct Table : FunctionTable {
  // Calls try entries in this order. The backend names decide between equal places.
  using Place = std::tuple<int, int, int>;
  static constexpr Place kOut{INT_MAX, 0, 0};
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    Eligibility eligibility;
    Place place = kOut;
  };
  std::vector<Entry> entries;            // eligible entries in the order of calls, then the others
  std::vector<const FunctionRow*> list;  // the eligible implementations, for FunctionTable::rows
  std::shared_ptr<base::Counter> originals;

  // Reuses implementations and counters of `before`, which may be null. May run probes.
  static std::unique_ptr<const Table> make(const Situation& situation, const FunctionSite& site,
                                           const Table* before);
};

struct SnapshotTables {
  std::vector<std::unique_ptr<const Table>> tables;  // by FunctionSite::index; null if not made
  std::vector<const FunctionTable*> list;            // the elements of `tables`
  struct Scoped {
    uint32_t site;
    uint64_t scope;  // ScopeState::providers
    std::unique_ptr<const Table> table;
    Scoped* next = nullptr;
  };
  static constexpr uint32_t kMostScoped = 256;
  mutable base::OwnedAppendList<Scoped> scoped;

  // Returns null if there is no table yet. Scope 0 stands for calls outside of scopes.
  const Table* find(const FunctionSite& site, uint64_t scope = 0) const noexcept;
  static const SnapshotTables* of(const dispatch::Snapshot& snapshot) noexcept {
    return static_cast<const SnapshotTables*>(snapshot.functions.get());
  }
};

// Returns null if the table has not been made yet. `guard` protects the table and its snapshot.
const Table* find_table(const FunctionSite& site, const ThreadHead& thread, Guard& guard) noexcept;

// Call this in a catch block. Any exception other than yard::Error becomes a fault.
Status status_of_exception();

struct Answer {
  yard_verdict_t verdict{};
  std::string broken = {};  // why the verifier is broken; the reason is then VERIFIER_BROKEN

  bool accepted() const noexcept { return verdict.reason == YARD_REASON_NONE; }
};
Answer ask_once(const Implementation& i, const ThreadHead& thread, const FunctionArgs& args);
// The verdict is "able" if the call could run the implementation.
FunctionCandidate explain_entry(const Table::Entry& e, const ThreadHead& thread,
                                const FunctionArgs& args);

}  // namespace yard::functions
