// SPDX-License-Identifier: Apache-2.0
#include "policy/rollout.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::policy {

Rollout::Rollout(RolloutRule rule, std::shared_ptr<const ProcessPolicy> next, size_t ops)
    : rule_(std::move(rule)),
      next_(std::move(next)),
      tallies_(new RolloutTally[2 * ops]),
      ops_(ops) {}

std::shared_ptr<const Rollout> Rollout::with(std::shared_ptr<const ProcessPolicy> next) const {
  auto other = std::make_shared<Rollout>(*this);
  other->next_ = std::move(next);
  return other;
}

bool Rollout::takes(const op::Labels& labels) const noexcept {
  for (const auto& wanted : rule_.labels)
    if (std::none_of(labels.begin(), labels.end(), [&](const auto& l) {
          return l.first == wanted.first && l.second == wanted.second;
        }))
      return false;
  thread_local double due = 0;
  due += rule_.percent;
  if (due < 100) return false;
  due -= 100;
  return true;
}

RolloutTally* Rollout::tally(uint32_t op, bool on_trial) const noexcept {
  return op < ops_ ? &tallies_[2 * op + (on_trial ? 1 : 0)] : nullptr;
}

RolloutResult Rollout::result() const {
  RolloutResult r;
  // Ops differ in what they cost: the time of each on trial stands against what the same op took before.
  double took = 0, expected = 0;
  for (size_t i = 0; i < ops_; ++i) {
    const RolloutTally &before = tallies_[2 * i], &trial = tallies_[2 * i + 1];
    const auto n = static_cast<double>(trial.calls.load()),
               m = static_cast<double>(before.calls.load());
    r.calls += trial.calls.load(), r.failed += trial.failed.load();
    if (n < static_cast<double>(kEnoughToTime) || m < static_cast<double>(kEnoughToTime)) continue;
    took += static_cast<double>(trial.ns.load());
    expected += n * (static_cast<double>(before.ns.load()) / m);
  }
  if (r.calls > 0) r.error_rate = static_cast<double>(r.failed) / static_cast<double>(r.calls);
  if (expected > 0) r.slowdown = took / expected;
  if (r.calls >= kEnough && r.error_rate > rule_.max_error_rate)
    r.too_bad = fmt::format("a kernel failed in {} of {} calls on trial; at most {:g} % may",
                            r.failed, r.calls, 100 * rule_.max_error_rate);
  else if (r.slowdown > rule_.max_slowdown)
    r.too_bad = fmt::format("calls on trial took {:.2f} times as long; at most {:g} times may be",
                            r.slowdown, rule_.max_slowdown);
  return r;
}

}  // namespace yard::policy
