// SPDX-License-Identifier: Apache-2.0
// Counts and sampled times of calls, by op, shape class, kernel and mode.
//
// A plan points to its class and to the series of its first kernel, and hits count in that series' per-thread counter. All
// else is rare: misses, failures and fallbacks write shared memory, samples one of a few blocks. Classes and series live as
// long as the table, are only added, and can be walked without a lock.
#pragma once

#include <yard/options.h>
#include <yard/stats.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "op/call.h"

namespace yard::health {

// The buckets of a LatencyHistogram: one up to 31 ns, then four for each factor of two.
struct LatencyBuckets {
  static constexpr uint32_t kCount = 128, kFirstOctave = 5;
  static uint32_t index(uint64_t ns) noexcept {
    if (ns < uint64_t{1} << kFirstOctave) return 0;
    const auto octave = static_cast<uint32_t>(std::bit_width(ns)) - 1;
    const uint32_t i =
        1 + (octave - kFirstOctave) * 4 + static_cast<uint32_t>(ns >> (octave - 2) & 3);
    return i < kCount ? i : kCount - 1;
  }
  static uint64_t up_to_ns(uint32_t i) noexcept {
    if (i == kCount - 1) return UINT64_MAX;
    if (i == 0) return (uint64_t{1} << kFirstOctave) - 1;
    const uint32_t octave = kFirstOctave + (i - 1) / 4;
    return ((uint64_t{4} + (i - 1) % 4 + 1) << (octave - 2)) - 1;
  }
};

// The calls of one class that one kernel served, or failed.
class Series {
 public:
  Series(std::string kernel_id, Mode m);
  ~Series();
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  const std::string kernel;
  const Mode mode;
  base::Counter calls;  // per thread

  // Any thread, also inside a call.
  void add_sample(uint64_t ns) noexcept;
  void add_failure(ErrorClass error) noexcept;
  void add_fallback() noexcept;

  // Everything but names, since the start.
  CallStats read() const;
  uint64_t failures() const noexcept;

 private:
  friend class CallTable;
  friend struct CallClass;
  struct Block;
  // A few, so that threads seldom write to the same one.
  static constexpr uint32_t kBlocks = 4;
  // Of this thread.
  Block& block() noexcept;
  // In a forked child.
  void restart() noexcept;

  const std::unique_ptr<Block[]> blocks_;
  Series* next_ = nullptr;
};

class CallTable;

// A shape class, or all further ones of an op.
struct CallClass {
  CallTable& table;
  const std::string op;
  const std::shared_ptr<const op::Program> program;  // null for further ones
  const std::shared_ptr<const op::Call> call;        // that stands for it; null for further ones
  const std::string key;
  mutable std::atomic<uint64_t> misses{0};

  // The series of a kernel, made if it is not there; null if there is no memory. Any thread.
  Series* series(std::string_view kernel, Mode mode) const noexcept;

  // Lists of the table.
  mutable std::atomic<Series*> first_series{nullptr};
  CallClass* next = nullptr;
};

class CallTable {
 public:
  CallTable() = default;
  ~CallTable();
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // The class that a call of a new plan belongs to. Takes a lock. Calls of a kind that is counting get a class even if
  // there are kMaxCallClasses.
  const CallClass& class_of(const std::string& op,
                            const std::shared_ptr<const op::Program>& program, const op::Call& call,
                            bool counting = false);

  // Fills in `calls`, `ops` and `since`.
  void read(RuntimeStats& to) const;
  // Later reads give the difference to now.
  void reset();
  // What each kernel has served and failed since the start, whatever was reset: by op and kernel.
  struct Totals {
    uint64_t calls = 0, failures = 0;
  };
  std::map<std::pair<std::string, std::string>, Totals> totals() const;
  // The same for one kernel. With `of`, only classes for which it returns true; it is not called for further ones.
  Totals totals(const std::string& op, const std::string& kernel,
                const std::function<bool(const CallClass&)>& of = {}) const;

  // In the fork handler of a child: everything is zero.
  void restart_in_child() noexcept;

 private:
  friend struct CallClass;
  // Beyond it, kernels are counted together. Plugins may come and go with new names for ever.
  static constexpr size_t kMaxSeries = 4 * kMaxCallClasses, kMaxOps = 1024;
  using ClassSeries = std::vector<std::pair<const CallClass*, const Series*>>;
  static Totals sum(const ClassSeries& all, const std::function<bool(const CallClass&)>& of);
  // Under the lock.
  const CallClass& add(std::string op, std::shared_ptr<const op::Program> program,
                       std::shared_ptr<const op::Call> call, std::string key);
  template <class F>
  void for_each_class(const F& f) const {
    for (const CallClass* c = first_.load(std::memory_order_acquire); c != nullptr; c = c->next)
      f(*c);
  }
  template <class F>
  static void for_each_series(const CallClass& c, const F& f) {
    for (Series* s = c.first_series.load(std::memory_order_acquire); s != nullptr; s = s->next_)
      f(*s);
  }

  std::atomic<CallClass*> first_{nullptr};
  mutable base::Mutex lock_{base::Rank::kCalls};
  // The rest is under the lock.
  std::unordered_map<std::string, const CallClass*> by_key_;
  std::map<std::string, const CallClass*, std::less<>> others_;
  size_t series_ = 0;
  std::map<std::pair<std::string, std::string>, ClassSeries> by_kernel_;  // by op and kernel
  // Of the last reset.
  std::chrono::system_clock::time_point since_ = std::chrono::system_clock::now();
  std::unordered_map<const Series*, CallStats> series_before_;
  std::unordered_map<const CallClass*, uint64_t> misses_before_;
};

}  // namespace yard::health
