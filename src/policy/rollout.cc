// SPDX-License-Identifier: Apache-2.0
#include "policy/rollout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace yard::policy {

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
  return 100 * base::random_unit() < rule_.percent;
}

RolloutTally& Rollout::tally(uint64_t kind, bool in_rollout) const noexcept {
  constexpr size_t kTries = 16;
  const uint64_t id = kind != 0 ? kind : 1;
  Kind* found = &counts_->kinds[kKinds];
  for (size_t i = 0; i < kTries; ++i) {
    Kind& k = counts_->kinds[(id + i) % kKinds];
    uint64_t now = k.id.load(std::memory_order_acquire);
    if (now == 0 && k.id.compare_exchange_strong(now, id, std::memory_order_acq_rel)) now = id;
    if (now != id) continue;
    found = &k;
    break;
  }
  return in_rollout ? found->rollout : found->before;
}

void Rollout::note_opened(const std::string& kernel, const std::string& why) const {
  auto text = std::make_unique<const std::string>(
      fmt::format("calls in the rollout opened the breaker of kernel '{}': {}", kernel, why));
  const std::string* none = nullptr;
  if (counts_->opened.compare_exchange_strong(none, text.get())) text.release();
}

RolloutResult Rollout::result(bool over) const {
  RolloutResult r;
  // Calls differ in cost, so each kind is compared with the same kind under the rules in force.
  double took = 0, expected = 0;
  uint64_t compared = 0, checked_before = 0, wrong_before = 0;
  for (size_t i = 0; i <= kKinds; ++i) {
    const RolloutTally &before = counts_->kinds[i].before, &rollout = counts_->kinds[i].rollout;
    r.calls += rollout.calls.load(), r.failed += rollout.failed.load();
    r.checked += rollout.checked.load(), r.wrong += rollout.wrong.load();
    checked_before += before.checked.load(), wrong_before += before.wrong.load();
    const uint64_t n = rollout.timed.load(), m = before.timed.load();
    if (i == kKinds || n < kEnoughOfAKind || m < kEnoughOfAKind) continue;
    compared += n;
    took += static_cast<double>(rollout.ns.load());
    expected +=
        static_cast<double>(n) * (static_cast<double>(before.ns.load()) / static_cast<double>(m));
  }
  const double slowdown = compared >= kEnoughToTime && expected > 0 ? took / expected : 1;
  const auto too_many = [&](uint64_t bad, uint64_t all) {
    return all > 0 && static_cast<double>(bad) / static_cast<double>(all) > rule_.max_error_rate;
  };
  // Few results may be checked, so wrong results are a share of these and not of all calls.
  if ((over || r.checked >= kEnoughChecks) && too_many(r.wrong, r.checked))
    r.too_bad = fmt::format(
        "{} of {} checked results in the rollout were wrong, and {} of {} under the rules in "
        "force; at most {:g} % may be",
        r.wrong, r.checked, wrong_before, checked_before, 100 * rule_.max_error_rate);
  else if ((over || r.calls >= kEnough) && too_many(r.failed, r.calls))
    r.too_bad =
        fmt::format("{} of {} calls in the rollout failed or saw a kernel fail; at most {:g} % may",
                    r.failed, r.calls, 100 * rule_.max_error_rate);
  else if (const std::string* opened = counts_->opened.load())
    r.too_bad = *opened;
  else if (slowdown > rule_.max_slowdown)
    r.too_bad =
        fmt::format("calls in the rollout took {:.2f} times as long; at most {:g} times may be",
                    slowdown, rule_.max_slowdown);
  return r;
}

}  // namespace yard::policy
