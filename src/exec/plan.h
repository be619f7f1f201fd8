// SPDX-License-Identifier: Apache-2.0
// A plan: the kernels that run the calls of one shape class, in order. It holds no sizes of a call.
#pragma once

#include <yard/options.h>
#include <yard/plugin.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/counters.h"
#include "base/log.h"
#include "registry/records.h"

namespace yard::exec {

// The kinds of calls of a kernel whose successes health must see: those with consecutive faults. Keeps the successes of
// all others off the health board, whose lock they must not take. A filter of 64 bits, one for each hash
// (health::kind_bit) of a kind. Invariant: while the board counts consecutive faults of a kind, its bit is set, and no
// plan of the kernel is direct. Kinds share bits, so one may be set without need: then a success is reported in vain, and
// the answer clears it. Any thread. Functions that return bool: whether empty() may have changed.
class SuspectKinds {
 public:
  bool empty() const noexcept { return bits_.load(std::memory_order_relaxed) == 0; }
  bool has(uint64_t bit) const noexcept { return (bits_.load() & bit) != 0; }
  bool add(uint64_t bit) noexcept { return bits_.fetch_or(bit) == 0; }
  bool remove(uint64_t bits) noexcept {
    const uint64_t before = bits_.fetch_and(~bits);
    return before != 0 && (before & ~bits) == 0;
  }
  // A success of a kind whose bit is set. `report()` reports it to health; returns the kinds that still have faults.
  template <class F>
  bool succeeded(uint64_t bit, const F& report) {
    // Cleared before health is asked: a fault that is reported meanwhile is in the answer, or sets the bit again.
    uint64_t others = bits_.fetch_and(~bit) & ~bit;
    bool changed = others == 0;
    const uint64_t failing = report();
    if ((failing & bit) != 0) changed |= add(bit);  // another kind with the same bit
    // After a manual reset none fails. The exchange fails if a fault has set a bit since, which then stays.
    if (failing == 0 && bits_.compare_exchange_strong(others, 0)) changed |= others != 0;
    return changed;
  }

 private:
  std::atomic<uint64_t> bits_{0};
};

// Counts of a kernel's calls and failures; shared by all entries that list the kernel.
struct KernelStats {
  base::Counter calls;
  base::Counter failures;
  mutable base::LogLimit failed, fell_back;  // of its log messages
  mutable SuspectKinds suspects;
};

// One kernel of a plan. Borrowed: the entry that the plan belongs to owns both.
struct Attempt {
  const registry::Kernel* kernel;
  const KernelStats* stats;
};

struct Plan {
  static constexpr size_t kMaxAttempts = 8;

  // Read by a hit.
  uint64_t hash = 0;
  int32_t (*run)(yard_call_t*, const yard_value_t*, uint32_t) = nullptr;
  void* self = nullptr;
  uint32_t counter = base::kNoCounter;
  uint16_t key_words = 0;
  uint8_t attempt_count = 0;
  uint8_t tries = 0;    // the limit of attempts that one call may run
  bool simple = false;  // the first kernel can be called without workspace, state or observers
  // The number of handles that use it; a pinned plan is not evicted. Changed under the plan lock.
  mutable std::atomic<uint32_t> pins{0};
  Mode mode = Mode::kDynamic;  // of the selection
  Attempt attempts[kMaxAttempts] = {};

  // Whether the first kernel can be called with nothing before and after it.
  bool is_direct() const noexcept { return simple && attempts[0].stats->suspects.empty(); }

  // The key follows the plan in memory.
  const uint64_t* key() const noexcept { return reinterpret_cast<const uint64_t*>(this + 1); }

  struct Deleter {
    void operator()(Plan* p) const noexcept;
  };
  using Ptr = std::unique_ptr<Plan, Deleter>;
  // `attempts`: best first, at least one; those beyond kMaxAttempts are ignored.
  static Ptr make(uint64_t hash, std::span<const uint64_t> key, std::span<const Attempt> attempts);
};
static_assert(sizeof(Plan) <= 300 - 4 * sizeof(uint64_t), "a plan stays within 300 bytes");

}  // namespace yard::exec
