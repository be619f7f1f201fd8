// SPDX-License-Identifier: Apache-2.0
// RuntimeStats has counters and timings of all calls of a runtime.
//
//   std::puts(to_json(yard::Runtime::shared().stats()).c_str());
//
// Counts are exact across every change, except for calls that run while they are read. One call in
// `sampled_one_in`, at random, is timed. Frozen handles do not count. A child starts at zero.
#pragma once

#include <yard/health.h>

namespace yard {

inline constexpr size_t kMaxCallClasses = 2048;  // later shape classes are counted as `other`

struct LatencyHistogram {  // times of sampled calls, with four buckets for each factor of two
  struct Bucket {
    uint64_t up_to_ns;  // the largest time in it; UINT64_MAX in the last
    uint64_t count;
  };
  uint64_t count = 0, sum_ns = 0;
  std::vector<Bucket> buckets;  // ascending; without empty ones

  YARD_API double mean_ns() const noexcept;  // 0 without samples
  // Returns the bound of the bucket that holds the quantile, `q` from 0 to 1, or 0 without samples.
  YARD_API uint64_t quantile_ns(double q) const noexcept;
  YARD_API void add(const LatencyHistogram& other);
};

struct CallStats {  // of one op, kernel, mode and shape class
  std::string op, kernel;
  std::string mode;        // what decided the kernel's place: "dynamic", "config", "static"
  std::string call;        // a CallSpec that stands for the shape class, or "other"
  uint64_t calls = 0;      // that the kernel has served
  uint64_t fallbacks = 0;  // of these, after another kernel had failed
  HealthCounts::Failures failures;  // runs of it that failed
  LatencyHistogram latency;
};

struct OpStats {
  std::string op;
  uint64_t calls = 0;   // served
  uint64_t hits = 0;    // of these, with a plan that was known
  uint64_t misses = 0;  // calls that had to select
};

struct RuntimeStats {
  uint64_t generation = 0;   // snapshots published
  uint64_t selections = 0;   // times the selector ran for a call
  size_t plans = 0;          // in the caches now
  size_t overlays = 0;       // op entries made for call or scope policies, now
  size_t retired = 0;        // objects waiting to be freed (of all runtimes)
  size_t states = 0;         // of kernels, kept for plain calls and instances now
  uint64_t state_bytes = 0;  // the sum that their kernels report

  std::chrono::system_clock::time_point since;  // reset_stats() or the start
  uint32_t sampled_one_in = 128;
  std::vector<CallStats> calls;  // by op, kernel, class
  std::vector<OpStats> ops;      // those called, by name

  struct Reloads {                       // of rules, by a call or by the watch of a file
    uint64_t applied = 0, refused = 0;   // rules whose rollout began are applied, too
    uint64_t aborted = 0;                // rollouts that did worse
    uint64_t last_ns = 0, total_ns = 0;  // of those applied: checking, compiling, publishing
    std::string last_error;              // why the last rules were refused; empty if none were
  } reloads;
};

// The members are keys of one object; `since` is in seconds since 1970.
YARD_API std::string to_json(const RuntimeStats& stats);

}  // namespace yard
