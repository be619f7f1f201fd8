// SPDX-License-Identifier: Apache-2.0
// A snapshot is everything that a call can see, published by one pointer store. Each entry is one
// op under one policy, with a recipe and the plans found so far. Only the plan tables change, under
// the plan lock (planner.h). Readers follow one pointer to them.
#pragma once

#include <yard/detail/function.h>

#include <deque>

#include "dispatch/overlay.h"
#include "dispatch/recipe.h"
#include "exec/executor.h"
#include "select/select.h"

namespace yard::dispatch {

// Memos and bound handles compare it before each use. A process never uses a value twice.
class MemoVersion {
 public:
  const std::atomic<uint64_t>& value() const noexcept { return value_; }
  // Call this before finding the data to remember. Returns kNever while the version is suspended.
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t read() const noexcept {
    const uint64_t now = value_.load(std::memory_order_acquire);
    return now != 0 ? now : kNever;
  }
  // Makes memos stale. Call this before retiring the objects that memos refer to.
  void renew() noexcept;
  // Like renew(), but does nothing while the version is suspended.
  void invalidate() noexcept;
  // Makes all memos stale. Until renew(), calls make no memos.
  void suspend() noexcept { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};  // 0 while the version is suspended
};

// Plans by the hash of their keys: open addressing, at most half full. The size is a power of two.
using PlanTable = std::vector<std::atomic<const exec::Plan*>>;

// The last calls for which an op has selected plans, each once. The next entry of the op shares
// them, so that rules can be tried on earlier calls. Guarded by the plan lock.
struct KnownCalls {
  static constexpr size_t kMost = 256;
  void add(const op::Program& program, const op::Call& call);

  struct Known {
    size_t hash;
    std::shared_ptr<const op::Call> call;
  };
  std::vector<Known> all;  // oldest first
};

struct MadePlan {
  exec::Plan::Ptr plan;
  std::chrono::steady_clock::time_point at;  // set only if plans have a lifetime
};

// Selections free a few plans each, because freeing thousands at once makes a change slow.
void free_some_old_plans();

class Entry : public std::enable_shared_from_this<Entry> {
 public:
  // Memos of the entry's calls compare `memos`, and `calls` counts the calls. Kernels of `old` (may
  // be null) keep their KernelStats. `inside` is the snapshot whose overlay table will hold the
  // entry. It is null for the global entry, which also shares the known calls of `old`.
  Entry(select::CandidateSet candidates, uint64_t generation, MemoVersion& memos,
        std::shared_ptr<health::CallTable> calls, const Entry* old, const void* inside = nullptr);
  // The last owner retires the entry instead of deleting it.
  static std::shared_ptr<Entry> share(std::unique_ptr<Entry> made);
  ~Entry();

  // Returns the plan for a key, or null. The caller's guard must hold the entry.
  const exec::Plan* find(const Key& key) const noexcept {
    const PlanTable& table = *table_.load(base::kFollow);
    const size_t mask = table.size() - 1;
    for (size_t i = key.hash & mask;; i = (i + 1) & mask) {
      const exec::Plan* const p = table[i].load(base::kFollow);
      if (p == nullptr || is_for(*p, key)) return p;
    }
  }

  // ---- The caller holds the plan lock ----
  // Adds a plan unless the key has one, and returns the plan of the key. If there are `limit`
  // plans, evicts the oldest ones, but spares plans that were used since the last eviction.
  const exec::Plan* insert(const Key& key, exec::Plan::Ptr plan, size_t limit);
  KnownCalls& known_calls() const noexcept { return *known_calls_; }
  // Evicts plans that were made before that time. Returns how many.
  size_t sweep(std::chrono::steady_clock::time_point before);
  // Adds a node of a handle, which readers hold instead of the entry.
  void add_handle(const void* node) const;
  void drop_handle(const void* node) const { std::erase(handles_, node); }
  size_t plan_count() const noexcept { return plans_.size(); }

  // ---- Immutable ----
  const op::Program& program() const noexcept { return *program_; }
  const Recipe& recipe() const noexcept { return recipe_; }
  const select::CandidateSet& candidates() const noexcept { return candidates_; }
  uint64_t generation() const noexcept { return generation_; }
  static bool is_for(const exec::Plan& plan, const Key& key) noexcept {
    if (plan.hash != key.hash || plan.key_words != key.words) return false;
    for (uint32_t i = 0; i < key.words; ++i)  // std::equal() calls memcmp(), which is slower
      if (key.w[i] != plan.key()[i]) return false;
    return true;
  }
  const std::string& name() const noexcept { return candidates_.op_record().op->name; }
  uint32_t index() const noexcept { return candidates_.op_record().op->index; }
  const exec::KernelStats& stats(size_t candidate) const noexcept { return *stats_[candidate]; }

  // Makes a plan from the result of a selection, which must not be empty.
  exec::Plan::Ptr plan(const Key& key, const select::Order& order, const op::Call& call) const;

  OverlayKey overlay_key;
  Options overlay_options;
  ScopeContent overlay_scope;

 private:
  void make_table(size_t size);
  // Evicts up to `most` unpinned plans for which goes(plan, when it was made) returns true.
  template <class F>
  size_t evict(size_t most, const F& goes);

  const op::Program* program_;
  Recipe recipe_;
  std::atomic<PlanTable*> table_;
  uint64_t generation_;
  MemoVersion& memos_;
  select::CandidateSet candidates_;
  const std::shared_ptr<health::CallTable> calls_;               // outlives the counters in it
  std::vector<std::shared_ptr<const exec::KernelStats>> stats_;  // indexed by candidate
  std::deque<MadePlan> plans_;                                   // oldest first
  std::shared_ptr<KnownCalls> known_calls_;
  const void* inside_;
  // Guarded by the plan lock. Keeps room for the other holders that retiring the entry adds.
  mutable std::vector<const void*> handles_;
  std::unique_ptr<base::Retired> retired_ = std::make_unique<base::Retired>();
};

// FunctionTables is the first base, because calls of functions rely on this.
class Snapshot : public detail::FunctionTables, public std::enable_shared_from_this<Snapshot> {
 public:
  // The last owner retires the snapshot instead of deleting it.
  static std::shared_ptr<const Snapshot> share(std::unique_ptr<Snapshot> made);

  // Returns null if there is no such op. A site's index may be newer than the snapshot.
  const Entry* entry(uint32_t index) const noexcept {
    return index < entries.size() ? entries[index].get() : nullptr;
  }

  // Returns the overlay of an op for a key, or null if it was not made or has been replaced.
  const Entry* overlay(uint32_t index, const OverlayKey& key) const noexcept;
  // The caller holds the plan lock. Returns the overlay that the new one replaces, or null.
  std::shared_ptr<Entry> put_overlay(std::shared_ptr<Entry> entry) const;
  // The caller holds the plan lock. Returns the entries of all ops, and then the overlays.
  std::vector<std::shared_ptr<Entry>> all_entries() const;

  uint64_t generation = 0;
  std::vector<std::shared_ptr<Entry>> entries;  // by op index; see entry()
  std::shared_ptr<const registry::State> state;
  std::shared_ptr<const policy::ProcessPolicy> policy;
  std::shared_ptr<const health::HealthSnapshot> health;
  std::shared_ptr<const registry::CallObservers> observers;  // of every call; may be null
  bool forked = false;
  std::shared_ptr<const void> functions;  // owns the tables of FunctionTables; may be null

 private:
  std::unique_ptr<base::Retired> retired_ = std::make_unique<base::Retired>();

  // The table is bounded, so a new overlay may replace another.
  static constexpr uint32_t kOverlays = 256;
  static constexpr uint32_t kProbe = 8;
  static uint32_t place(uint32_t index, uint64_t hash) noexcept {
    return static_cast<uint32_t>((hash ^ (index * 0x9e3779b97f4a7c15ull)) >> 20);
  }
  mutable std::array<std::atomic<const Entry*>, kOverlays> overlays_{};
  mutable std::array<std::shared_ptr<Entry>, kOverlays> overlay_owners_;
  mutable uint32_t next_victim_ = 0;
};

}  // namespace yard::dispatch
