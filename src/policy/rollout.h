// SPDX-License-Identifier: Apache-2.0
// New rules in rollout beside those in force: which calls go by them, and how both have done so far.
#pragma once

#include <yard/config.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::policy {

struct ProcessPolicy;

// What calls of one kind have come to. Written by every call while rules are in rollout, and only then.
struct alignas(64) RolloutTally {
  std::atomic<uint64_t> calls{0}, failed{0};
  std::atomic<uint64_t> timed{0}, ns{0};

  void add(uint64_t took_ns, bool some_kernel_failed) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    timed.fetch_add(1, std::memory_order_relaxed);
    ns.fetch_add(took_ns, std::memory_order_relaxed);
    if (some_kernel_failed) failed.fetch_add(1, std::memory_order_relaxed);
  }
  // A call that no kernel was found for.
  void add_unserved() noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    failed.fetch_add(1, std::memory_order_relaxed);
  }
};

// How the rollout stands.
struct RolloutResult {
  uint64_t calls = 0, failed = 0;  // in rollout
  double error_rate = 0;
  double slowdown = 1;  // 1 where there is too little to compare
  std::string too_bad;  // why the rules must be taken back; empty: nothing is wrong
};

class Rollout {
 public:
  // Calls in the rollout before their share of errors, or their time, says anything.
  static constexpr uint64_t kEnough = 20, kEnoughToTime = 50;
  // Calls of a kind, on each side, before they are compared.
  static constexpr uint64_t kEnoughOfAKind = 5;
  // Kinds of calls that are told apart. Calls of others are counted and not compared.
  static constexpr size_t kKinds = 1024;

  // What calls of an op are told apart by.
  struct OpSizes {
    std::shared_ptr<const op::Program> program;
    std::vector<op::Field> fields;
  };

  // `next`: what is said for the process, with the new rules. `sizes`: of the ops there are, by index.
  Rollout(RolloutRule rule, std::shared_ptr<const ProcessPolicy> next, std::vector<OpSizes> sizes);
  // The same rollout, when something else is said for the process.
  std::shared_ptr<const Rollout> with(std::shared_ptr<const ProcessPolicy> next) const;

  const ProcessPolicy& next() const noexcept { return *next_; }
  const RolloutRule& rule() const noexcept { return rule_; }

  // Whether this call goes by the new rules. Drawn by lot, so that every thread, op and kind of call has its share.
  bool takes(const op::Labels& labels) const noexcept;
  // Null for an op that came, or came again, after the rollout began.
  const std::vector<op::Field>* sizes(uint32_t op, const op::Program& program) const noexcept;
  // `kind`: a hash of all that calls are told apart by.
  RolloutTally& tally(uint64_t kind, bool in_rollout) const noexcept;

  // `over`: no more calls will come, so fewer than enough must do.
  RolloutResult result(bool over = false) const;

 private:
  struct Kind {
    std::atomic<uint64_t> id{0};  // 0: free
    RolloutTally before, rollout;
  };

  RolloutRule rule_;
  std::shared_ptr<const ProcessPolicy> next_;
  std::shared_ptr<const std::vector<OpSizes>> sizes_;
  std::shared_ptr<Kind[]> kinds_;  // the last: calls of kinds that found no place
};

}  // namespace yard::policy
