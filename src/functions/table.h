// SPDX-License-Identifier: Apache-2.0
// The table of a function: its implementations in the order of calls, and why some are out. Decisions, their order and their
// reasons are those of kernels (select/candidate_set.h).
//
// Tables belong to a snapshot and are immutable. An implementation is made once per record and shared by the tables that list
// it. Both are retired when their last owner ends, and freed when no call holds them.
#pragma once

#include <yard/function.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/reclaimer.h"
#include "dispatch/scope.h"
#include "dispatch/snapshot.h"

namespace yard::functions {

struct Activation {
  std::string backend;
  std::optional<Device> device;  // none: the process; index -1: every device of that type
  bool operator==(const Activation&) const = default;
};
using Activations = std::vector<Activation>;  // in their order

// What decides: a snapshot, the host that probes ask, activations, and perhaps a scope. Borrows them.
class Situation {
 public:
  Situation(const dispatch::Snapshot& s, const yard_host_t* h, const Activations& a,
            const detail::ScopeContent* of_scope = nullptr)
      : snapshot(s), host(h), activations(a), scope(of_scope) {
    if (scope != nullptr) merged_ = merge(s.policy->in_force, scope->policy);
  }
  const dispatch::Snapshot& snapshot;
  const yard_host_t* const host;
  const Activations& activations;
  const detail::ScopeContent* const scope;

  // In force, in the scope.
  const Policy& policy() const { return merged_ ? *merged_ : snapshot.policy->in_force; }
  // The master switch: every call runs the default.
  bool off() const { return policy().reference_only.value_or(false); }

 private:
  std::optional<Policy> merged_;
};

struct Eligibility {
  int32_t reason = YARD_REASON_NONE;
  std::string text = {};  // explains the reason, unless it is an open breaker
  std::optional<health::BreakerStatus> breaker = {};  // unset: closed

  bool eligible() const noexcept { return reason == YARD_REASON_NONE; }
  // Of a half-open breaker, to be entered before the implementation runs; else null.
  health::ProbeSlots* probes() const noexcept { return breaker ? breaker->probes.get() : nullptr; }
  // The text as of now: why it is out, or the state of a breaker that is not closed.
  std::string why() const;
  bool same_as(const Eligibility& other) const noexcept;
};

// The record of a backend. One that only provides functions may have none: it has no vendor and no probe, and is enabled.
std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name);
// By policy and process: allowed, enabled, usable after fork(). Runs no code of the backend.
Eligibility by_policy(const Situation& situation, const registry::Backend& backend);
// By the machine: available on the device, and the device not lost, unless it stands for all devices of its type. May run
// the probe of the backend.
Eligibility on_device(const Situation& situation, const registry::Backend& backend, Device device,
                      bool any_device);

// Higher first.
int priority_of(const registry::Function& function) noexcept;
// The key of an implementation in health: the function is the op, the backend the kernel.
health::Key health_key(const registry::Function& implementation);

struct Provider {
  std::shared_ptr<const registry::Function> record;
  Eligibility eligibility;
  std::tuple<int, int, int> place =
      {};  // in the order of calls, after which the name of the backend decides
};
// The eligible ones in the order of calls, then the others by backend. `signature` empty: any. May run probes.
std::vector<Provider> providers_of(const Situation& situation, std::string_view group,
                                   std::string_view name, std::string_view signature,
                                   Selection selection);

// One backend's implementation of one function, with its counters.
struct Implementation : detail::FunctionRow {
  static std::shared_ptr<const Implementation> make(
      std::shared_ptr<const registry::Function> record);

  const std::shared_ptr<const registry::Function> record;
  base::Counter successes, thrown, failures;  // of what was thrown, some are failures

  // Logs the reason of a refusal the first time it is given, for up to kReasons reasons.
  void refused(const yard_verdict_t& v) const;
  // Logs that the verifier threw.
  void broken(const std::string& text) const;
  // False for a number of its own that is beyond its list of texts.
  bool has_text(int32_t reason) const noexcept;
  std::string text_of(int32_t reason, const int64_t figures[3]) const;

 private:
  explicit Implementation(std::shared_ptr<const registry::Function> r);
  static constexpr size_t kReasons = 16;
  mutable std::atomic<int32_t> logged_[kReasons]{};  // reasons; 0 where there is none yet
  std::unique_ptr<base::Retired> retired_;
};

// What a call reads, and the implementations that are out.
struct Table : detail::FunctionTable {
  struct Entry {
    std::shared_ptr<const Implementation> implementation;
    Eligibility eligibility;
  };
  std::vector<Entry> entries;  // as providers_of() gives them; the first `count` are the rows
  std::vector<const detail::FunctionRow*> list;
  std::shared_ptr<base::Counter> originals;
  bool strict = false;              // no fallback after a failure
  std::optional<size_t> fallbacks;  // at most, in one call; unset: all

  // Implementations and counters are taken over from `before`, which may be null.
  static std::shared_ptr<const Table> make(const Situation& situation,
                                           const detail::FunctionSite& site, const Table* before);
  // Whether calls would see no difference.
  bool same_as(const Table& other) const;

 private:
  std::unique_ptr<base::Retired> retired_;
};

// The tables of a snapshot: one for each site, and those for scopes, which calls add when they need them.
struct SnapshotTables {
  std::vector<std::shared_ptr<const Table>> tables;  // by FunctionSite::index; null: not made
  std::vector<const detail::FunctionTable*> list;    // the same
  std::vector<uint8_t> quiet;                        // for FunctionSite::quiet

  SnapshotTables() = default;
  ~SnapshotTables();
  SnapshotTables(const SnapshotTables&) = delete;
  SnapshotTables& operator=(const SnapshotTables&) = delete;

  static constexpr uint32_t kMostScoped = 256;
  // For ScopeState::providers; null: none yet.
  const Table* find(const detail::FunctionSite& site, uint64_t scope) const noexcept;
  // Returns how many there are.
  uint32_t add(const detail::FunctionSite& site, uint64_t scope,
               std::shared_ptr<const Table> table) const;
  // Null: no table was made for the snapshot.
  static const SnapshotTables* of(const dispatch::Snapshot& snapshot) noexcept {
    return static_cast<const SnapshotTables*>(snapshot.functions.get());
  }

 private:
  struct Scoped {
    uint32_t site;
    uint64_t scope;
    std::shared_ptr<const Table> table;
    Scoped* next;
    uint32_t number;
  };
  mutable std::atomic<Scoped*> scoped_{nullptr};
};

// The table that a call of this thread reads, protected by `guard`; null: not made yet.
const Table* find_table(const detail::FunctionSite& site, const detail::ThreadHead& thread,
                        detail::Guard& guard) noexcept;

// The answer of a verifier.
struct Answer {
  bool accepted = false;
  yard_verdict_t verdict{};
  std::string broken;  // what is wrong with the verifier; empty: nothing
};
// An implementation without a verifier accepts.
Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args);

}  // namespace yard::functions
