// SPDX-License-Identifier: Apache-2.0
// The plan of a shape class: the kernels that run its calls, in order.
#pragma once

#include <yard/options.h>
#include <yard/plugin.h>

#include <span>

#include "base/log.h"
#include "health/call_table.h"
#include "registry/records.h"

namespace yard::exec {

// Shared by all entries that list a kernel.
struct KernelStats {
  // What kernels of its id had done before: those of an upgraded plugin start at zero.
  health::CallTotals before;
  uint64_t forks = base::forks();  // of the process that had done that
  // What this kernel has done, if kernels of its id have done `now`.
  health::CallTotals own(health::CallTotals now) const noexcept {
    if (forks != base::forks()) return now;  // kernels of a forked child start at zero, too
    return {now.calls - before.calls, now.failures - before.failures};
  }
  mutable base::LogLimit failed, fell_back;  // of its log messages
};

// One kernel of a plan. Borrowed: the entry that the plan belongs to owns both.
struct Attempt {
  const registry::Kernel* kernel;
  const KernelStats* stats;
};

// A plan holds no sizes of a call.
struct Plan {
  static constexpr size_t kMaxAttempts = 8;

  // Read by a hit.
  uint64_t hash = 0;
  int32_t (*run)(yard_call_t*, const yard_value_t*, uint32_t) = nullptr;
  void* self = nullptr;
  uint32_t counter = base::kNoCounter;  // of `series`
  uint16_t key_words = 0;
  uint8_t attempt_count = 0;
  uint8_t tries = 0;    // the limit of attempts that one call may run
  bool direct = false;  // the first kernel can be called without workspace and state, and unwatched
  bool only_workspace = false;  // the same but for its workspace
  // Whether it was used again since it was made or since the last eviction, which then keeps it.
  mutable std::atomic<bool> used_again{false};
  // The number of handles that use it; a pinned plan is not evicted. Changed under the plan lock.
  mutable std::atomic<uint32_t> pins{0};
  Mode modes[kMaxAttempts] = {};  // what decided the place of each attempt
  Attempt attempts[kMaxAttempts] = {};
  // Its calls are counted in its shape class, and there in the series of the first kernel. Null if they are not counted.
  const health::CallClass* call_class = nullptr;
  health::Series* series = nullptr;

  // Writes at most once between two evictions, because calls of other threads read the line.
  void note_use() const noexcept {
    if (!used_again.load(std::memory_order_relaxed)) [[unlikely]]
      used_again.store(true, std::memory_order_relaxed);
  }

  // Called once the modes are known.
  void count_in(const health::CallClass& c) noexcept {
    call_class = &c, series = c.series(attempts[0].kernel->id, modes[0]);
    if (series != nullptr) counter = series->calls.id();
  }
  // The series of an attempt; null if it is not counted. Beyond the first it takes a lock.
  health::Series* series_of(size_t attempt) const noexcept {
    if (attempt == 0 || call_class == nullptr) return series;
    return call_class->series(attempts[attempt].kernel->id, modes[attempt]);
  }

  // The key follows the plan in memory.
  const uint64_t* key() const noexcept { return reinterpret_cast<const uint64_t*>(this + 1); }

  static void operator delete(void* p) noexcept { ::operator delete(p); }  // with its key
  using Ptr = std::unique_ptr<Plan>;
  // There is at least one attempt, and the best comes first. Those beyond kMaxAttempts are ignored.
  static Ptr make(uint64_t hash, std::span<const uint64_t> key, std::span<const Attempt> attempts);
};
static_assert(sizeof(Plan) <= 300 - 4 * sizeof(uint64_t), "a plan stays within 300 bytes");

}  // namespace yard::exec
