// SPDX-License-Identifier: Apache-2.0
// New rules on trial beside those in force: which calls go by them, and how both have done so far.
#pragma once

#include <yard/config.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "op/call_spec.h"

namespace yard::policy {

struct ProcessPolicy;

// What calls have come to, of one op. Written by every call while rules are on trial, and only then.
struct alignas(64) RolloutTally {
  std::atomic<uint64_t> calls{0}, failed{0}, ns{0};

  void add(uint64_t took_ns, bool some_kernel_failed) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    ns.fetch_add(took_ns, std::memory_order_relaxed);
    if (some_kernel_failed) failed.fetch_add(1, std::memory_order_relaxed);
  }
};

// How the trial stands.
struct RolloutResult {
  uint64_t calls = 0, failed = 0;  // on trial
  double error_rate = 0;
  double slowdown = 1;  // 1 where there is too little to compare
  std::string too_bad;  // why the rules must be taken back; empty: nothing is wrong
};

class Rollout {
 public:
  // Calls on trial before their share of errors, or their time, says anything.
  static constexpr uint64_t kEnough = 20, kEnoughToTime = 50;

  // `next`: what is said for the process, with the new rules. `ops`: how many there may be.
  Rollout(RolloutRule rule, std::shared_ptr<const ProcessPolicy> next, size_t ops);
  // The same trial, when something else is said for the process.
  std::shared_ptr<const Rollout> with(std::shared_ptr<const ProcessPolicy> next) const;
  bool is_same(const Rollout& other) const noexcept { return tallies_ == other.tallies_; }

  const ProcessPolicy& next() const noexcept { return *next_; }
  const RolloutRule& rule() const noexcept { return rule_; }

  // Whether this call of the calling thread goes by the new rules; exactly its share of them do.
  bool takes(const op::Labels& labels) const noexcept;
  // Null for an op that came after the trial began.
  RolloutTally* tally(uint32_t op, bool on_trial) const noexcept;

  RolloutResult result() const;

 private:
  RolloutRule rule_;
  std::shared_ptr<const ProcessPolicy> next_;
  std::shared_ptr<RolloutTally[]> tallies_;  // two for each op: before, on trial
  size_t ops_;
};

}  // namespace yard::policy
