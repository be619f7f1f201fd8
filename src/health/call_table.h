// SPDX-License-Identifier: Apache-2.0
// Counts calls and samples their times, by op, shape class, kernel and mode.
// A plan points to its class and to the series of its first kernel, whose per-thread counter hits
// use. Everything else is rare and writes shared memory. Classes and series live as long as the
// table.
#pragma once

#include <yard/options.h>
#include <yard/stats.h>

#include <unordered_map>

#include "base/counters.h"
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

struct CallTotals {
  uint64_t calls = 0, failures = 0;
};

// The calls of one class that one kernel served or failed.
class Series {
 public:
  Series(std::string_view kernel_id, Mode m) : kernel(kernel_id), mode(m) {}

  const std::string kernel;
  const Mode mode;
  base::Counter calls;  // per thread

  void add_sample(uint64_t ns) noexcept;  // any thread may call this, also inside a call
  void add_failure(ErrorClass error) noexcept { add(kFailures + static_cast<size_t>(error)); }
  void add_fallback() noexcept { add(kFallbacks); }

 private:
  friend class CallTable;
  static constexpr size_t kCalls = 0, kSum = 1, kFallbacks = 2, kFailures = 3, kBuckets = 10,
                          kNumbers = kBuckets + LatencyBuckets::kCount;
  using Numbers = std::array<uint64_t, kNumbers>;
  struct alignas(64) Block {
    std::atomic<uint64_t> of[kNumbers] = {};
  };
  void add(size_t place, uint64_t n = 1) noexcept;
  Numbers read() const;  // since the start
  void add_to(CallTotals& to) const;

  Block blocks_[4];   // several, so that threads seldom share one
  Numbers before_{};  // values at the last reset; guarded by the table's lock
};

// One shape class of an op, or the rest of its shape classes if there are too many.
struct CallClass {
  class CallTable& table;
  const std::string op;
  const std::shared_ptr<const op::Program> program;  // null for the rest
  const std::shared_ptr<const op::Call> call;        // an example of the class; null for the rest
  mutable std::atomic<uint64_t> misses{0};

  // Makes the series if there is none. Returns null if memory is exhausted. Takes a lock.
  Series* series(std::string_view kernel, Mode mode) const noexcept;

  // The table uses these under its lock.
  mutable std::map<std::pair<std::string, Mode>, Series> all_series = {};
  mutable uint64_t misses_before = 0;  // at the last reset
};

class CallTable {
 public:
  CallTable() = default;
  CallTable& operator=(CallTable&&) = delete;

  // Takes a lock. A kind that is counting gets a class even if there are kMaxCallClasses.
  const CallClass& class_of(const std::string& op,
                            const std::shared_ptr<const op::Program>& program, const op::Call& call,
                            bool counting = false);

  // Fills in `calls`, `ops` and `since`.
  void read(RuntimeStats& to) const;
  void reset();  // later reads give the difference from now
  // Returns the totals by op and kernel since the start. reset() does not affect them.
  std::map<std::pair<std::string, std::string>, CallTotals> totals() const;
  // If `of` is given, counts only classes for which it returns true, and not the rest of an op.
  CallTotals totals(const std::string& op, const std::string& kernel,
                    const std::function<bool(const CallClass&)>& of = {}) const;

  // Sets everything to zero. The fork handler of a child calls this.
  void restart_in_child() noexcept;

 private:
  friend struct CallClass;
  // Further kernels and ops are counted together, since plugins may bring new names for ever.
  static constexpr size_t kMaxSeries = 4 * kMaxCallClasses, kMaxOps = 1024;
  template <class F>
  void for_each(const F& f) const;

  mutable base::Mutex lock_{base::Rank::kCalls};
  // lock_ guards the following members.
  std::unordered_map<std::string, std::unique_ptr<CallClass>> classes_;  // by key
  std::map<std::string, std::unique_ptr<CallClass>> others_;             // by op
  size_t series_ = 0;
  std::chrono::system_clock::time_point since_ = std::chrono::system_clock::now();
};

}  // namespace yard::health
