// SPDX-License-Identifier: Apache-2.0
// An entry: one op under one policy, with its recipe and the plans found so far. Immutable but for its
// plan table, which only its writer (under the root's plan lock) changes and readers follow by one
// pointer.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/reclaimer.h"
#include "dispatch/recipe.h"
#include "exec/plan.h"
#include "op/call.h"
#include "select/contest.h"

namespace yard::dispatch {

// Open addressing, at most half full, never shrunk in place: a change makes a new table.
struct PlanTable {
  uint32_t mask = 0;
  uint32_t used = 0;
  std::unique_ptr<std::atomic<const exec::Plan*>[]> slots;

  explicit PlanTable(uint32_t size) : mask(size - 1), slots(new std::atomic<const exec::Plan*>[size]) {
    for (uint32_t i = 0; i < size; ++i) slots[i].store(nullptr, std::memory_order_relaxed);
  }
  void put(const exec::Plan* plan) noexcept;
};

// A plan and a call that stands for its class: what a later entry replans.
struct ClassRecord {
  exec::Plan::Ptr plan;
  op::Call representative;
};

class Entry : public std::enable_shared_from_this<Entry> {
 public:
  // Shared pointers to entries retire instead of deleting. `inside` is the snapshot whose overlay table
  // will hold it, if any.
  static std::shared_ptr<Entry> make(select::Contest contest, uint64_t generation,
                                     const Entry* stats_from, const void* inside = nullptr);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // The plan for a key, null if there is none yet. Inside a guard that holds the entry.
  const exec::Plan* find(const Key& key) const noexcept {
    const PlanTable* table = table_.load(base::kFollow);
    for (uint32_t i = static_cast<uint32_t>(key.hash) & table->mask;; i = (i + 1) & table->mask) {
      const exec::Plan* p = table->slots[i].load(base::kFollow);
      if (p == nullptr) [[unlikely]] return nullptr;
      if (p->hash == key.hash && same_key(*p, key)) [[likely]] return p;
    }
  }

  // ---- Under the plan lock ----

  // Adds a plan unless its class has one; beyond `limit` the oldest go. Returns the class's plan.
  const exec::Plan* insert(exec::Plan::Ptr plan, op::Call representative, size_t limit);
  const std::deque<ClassRecord>& classes() const noexcept { return classes_; }
  size_t plan_count() const noexcept { return classes_.size(); }

  // ---- Immutable ----
  const op::Program& program() const noexcept { return *program_; }
  const Recipe& recipe() const noexcept { return recipe_; }
  const select::Contest& contest() const noexcept { return contest_; }
  uint64_t generation() const noexcept { return generation_; }
  bool strict() const noexcept { return contest_.strict(); }
  const std::string& name() const noexcept { return contest_.family().op->name; }
  const exec::KernelStats& stats(size_t contender) const noexcept { return *stats_[contender]; }

  // A plan from a selection's outcome. `order` is not empty.
  exec::Plan::Ptr plan(const Key& key, const std::vector<uint16_t>& order) const;

  // Set while insert() works: a child of fork finds such an entry unusable and makes a new one.
  bool being_edited() const noexcept { return editing_.load(std::memory_order_relaxed); }

  // Which overlay this is; empty for the global entry.
  std::string overlay_key;
  uint64_t overlay_hash = 0;

 private:
  Entry(select::Contest contest, uint64_t generation, const Entry* stats_from, const void* inside);

  static bool same_key(const exec::Plan& p, const Key& key) noexcept {
    if (p.key_words != key.words) return false;
    const uint64_t* k = p.key();
    for (uint32_t i = 0; i < key.words; ++i)
      if (k[i] != key.w[i]) return false;
    return true;
  }
  void replace_table(std::unique_ptr<PlanTable> next);
  void evict(size_t keep);

  const op::Program* program_;
  Recipe recipe_;
  std::atomic<PlanTable*> table_;
  uint64_t generation_;
  select::Contest contest_;
  std::vector<std::shared_ptr<const exec::KernelStats>> stats_;  // by contender
  std::deque<ClassRecord> classes_;                              // oldest first
  std::atomic<bool> editing_{false};
  const void* inside_;
};

}  // namespace yard::dispatch
