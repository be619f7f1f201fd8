// SPDX-License-Identifier: Apache-2.0
// New rules in rollout beside those in force: which calls use them, and the results of both so far.
#pragma once

#include <yard/config.h>

#include <atomic>

#include "op/call_spec.h"

namespace yard::policy {

struct ProcessPolicy;

// Counters of the calls of one kind, written by every call while rules are in rollout.
struct alignas(64) RolloutTally {
  std::atomic<uint64_t> calls{0}, failed{0};
  std::atomic<uint64_t> timed{0}, ns{0};
  std::atomic<uint64_t> checked{0}, wrong{0};  // results, by canary checks

  static void count(std::atomic<uint64_t>& of, uint64_t n = 1) noexcept {
    of.fetch_add(n, std::memory_order_relaxed);
  }
  void add(uint64_t took_ns, bool some_kernel_failed) noexcept {
    count(calls), count(timed), count(ns, took_ns);
    if (some_kernel_failed) count(failed);
  }
  void add_check(bool found_wrong) noexcept {
    count(checked);
    if (found_wrong) count(wrong);
  }
  // The first calls of each kind are checked even if canary checks do not sample them.
  bool wants_check() const noexcept {
    return checked.load(std::memory_order_relaxed) < 5 &&
           calls.load(std::memory_order_relaxed) < 20;
  }
  void add_unserved() noexcept { count(calls), count(failed); }  // a call without a kernel
};

struct RolloutResult {
  uint64_t calls = 0, failed = 0;   // in rollout
  uint64_t checked = 0, wrong = 0;  // of these, by canary checks
  std::string too_bad;              // why the rollout must be aborted, or empty
};

class Rollout {
 public:
  // Error rates, times and results are judged only after this many calls and checked results.
  static constexpr uint64_t kEnough = 20, kEnoughToTime = 50, kEnoughChecks = 5;
  static constexpr uint64_t kEnoughOfAKind = 5;  // calls of a kind on each side
  // Calls of further kinds are counted but not compared.
  static constexpr size_t kKinds = 1024;

  Rollout(RolloutRule rule, std::shared_ptr<const ProcessPolicy> next)
      : rule_(std::move(rule)), next_(std::move(next)) {}
  // Copies the rollout after another part of the process's policy has changed.
  std::shared_ptr<const Rollout> with(std::shared_ptr<const ProcessPolicy> next) const;

  const ProcessPolicy& next() const noexcept { return *next_; }
  const RolloutRule& rule() const noexcept { return rule_; }

  // Decides at random, so that every thread, op and kind of call has its share.
  bool takes(const op::Labels& labels) const noexcept;
  // `kind` is a hash of all that distinguishes kinds of calls.
  RolloutTally& tally(uint64_t kind, bool in_rollout) const noexcept;

  // Aborts the rollout, because a call in it has opened a breaker. Other kernels serve such calls
  // from now on, so the error rate would stay low.
  void note_opened(const std::string& kernel, const std::string& why) const;

  // If `over`, judges errors even if there are few calls.
  RolloutResult result(bool over = false) const;

 private:
  struct Kind {
    std::atomic<uint64_t> id{0};  // 0 if free
    RolloutTally before, rollout;
  };

  struct Counts {
    Kind kinds[kKinds + 1];                           // the last one counts calls of further kinds
    std::atomic<const std::string*> opened{nullptr};  // the text of the first note_opened()
    ~Counts() { delete opened.load(); }
  };

  RolloutRule rule_;
  std::shared_ptr<const ProcessPolicy> next_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace yard::policy
