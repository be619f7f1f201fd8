// SPDX-License-Identifier: Apache-2.0
// Makes entries, and plans for calls that have none. Plans are added to entries under the plan
// lock. Probes, verifiers and cost hints run without a lock.
#pragma once

#include <yard/runtime.h>

#include "dispatch/snapshot.h"

namespace yard::dispatch {

class Planner {
 public:
  Planner(Core& core, size_t plans_per_op);

  // Makes an entry for `next`, which is being built. `old` may be null. Runs plugin code.
  std::shared_ptr<Entry> make_entry(const Snapshot& next, const registry::OpRecord& op_record,
                                    const Entry* old);
  // Makes an entry for these options and this scope (or null). `global` is the op's entry in `s`.
  Result<std::shared_ptr<const Entry>> overlay(const std::shared_ptr<const Snapshot>& s,
                                               const Entry& global, const Options* options,
                                               const ScopeState* scope, const OverlayKey& key);

  // Selects a plan for the class of `call` and stores it. Other threads that need this plan wait.
  // Returns null when the caller may look the plan up, or a plan that could not be stored.
  Result<exec::Plan::Ptr> make_plan(const Entry& entry, const Key& key, const op::Call& call);
  // Selects a plan without storing it.
  Result<exec::Plan::Ptr> fresh_plan(const Entry& entry, const Key& key, const op::Call& call);
  // Keeps a stored plan, and the entry while a reader holds `node`. Returns null if it was evicted.
  const exec::Plan* pin_plan(const Entry& entry, const Key& key, const void* node);
  void unpin_plan(const Entry& entry, const exec::Plan* plan, const void* node);
  // Evicts plans that are older than the rules allow. Returns when to call this again, or nothing.
  std::optional<std::chrono::steady_clock::time_point> sweep(
      std::chrono::steady_clock::time_point now);

  struct KnownCall {
    std::shared_ptr<const op::Call> call;
    const registry::Kernel* kernel = nullptr;  // null if the entry has no plan for the call
    Mode mode = Mode::kDynamic;                // decided the kernel's place
    bool direct = false;                       // as in exec::Plan
  };
  // Returns the last calls for which entries of the op have selected plans, oldest first.
  std::vector<KnownCall> known_calls(const Entry& entry) const;
  std::vector<std::shared_ptr<Entry>> all_entries(const Snapshot& s) const;
  RuntimeStats stats() const;

  void restart_in_child() noexcept { pending_.clear(), selections_ = 0; }

 private:
  std::shared_ptr<registry::ResultChecker> make_result_checker(
      const policy::ProcessPolicy& policy, bool in_rollout,
      const std::shared_ptr<const registry::OpRecord>& op_record,
      const select::ProcessState& where);

  struct Pending {
    const Entry* entry = nullptr;
    std::vector<uint64_t> key;
    bool done = false;
    Status status;
  };

  size_t limit_of(const Entry& entry) const noexcept;  // how many plans it may store

  Core& core_;
  const size_t plans_per_op_;
  // Guards the plan tables and overlay tables of all entries and snapshots, and `pending_`.
  mutable base::Mutex lock_{base::Rank::kPlans};
  base::Condition finished_;
  std::vector<std::shared_ptr<Pending>> pending_;
  std::atomic<uint64_t> selections_{0};
};

// Frees retired objects if there are many. Calls use this when they retire one, without a lock.
void collect_if_due();

Status check_options(const registry::OpRecord& op_record, const Options& o);

}  // namespace yard::dispatch
