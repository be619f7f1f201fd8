// SPDX-License-Identifier: Apache-2.0
#include "policy/rollout.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::policy {
namespace {

// Uniform in [0, 100), new for every call (splitmix64).
double random_percent() noexcept {
  static std::atomic<uint64_t> threads{0};
  thread_local uint64_t state =
      (threads.fetch_add(1, std::memory_order_relaxed) + 1) * 0xd1342543de82ef95u;
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * (100.0 / 9007199254740992.0);  // of 53 bits
}

}  // namespace

Rollout::Rollout(RolloutRule rule, std::shared_ptr<const ProcessPolicy> next,
                 std::vector<OpSizes> sizes)
    : rule_(std::move(rule)),
      next_(std::move(next)),
      sizes_(std::make_shared<const std::vector<OpSizes>>(std::move(sizes))),
      kinds_(new Kind[kKinds + 1]) {}

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
  return random_percent() < rule_.percent;
}

const std::vector<op::Field>* Rollout::sizes(uint32_t op,
                                             const op::Program& program) const noexcept {
  if (op >= sizes_->size() || (*sizes_)[op].program.get() != &program) return nullptr;
  return &(*sizes_)[op].fields;
}

RolloutTally& Rollout::tally(uint64_t kind, bool in_rollout) const noexcept {
  constexpr size_t kTries = 16;
  const uint64_t id = kind != 0 ? kind : 1;
  Kind* found = &kinds_[kKinds];
  for (size_t i = 0; i < kTries; ++i) {
    Kind& k = kinds_[(id + i) % kKinds];
    uint64_t now = k.id.load(std::memory_order_acquire);
    if (now == 0 && k.id.compare_exchange_strong(now, id, std::memory_order_acq_rel)) now = id;
    if (now != id) continue;
    found = &k;
    break;
  }
  return in_rollout ? found->rollout : found->before;
}

RolloutResult Rollout::result(bool over) const {
  RolloutResult r;
  // Calls differ in cost: each kind is compared with the same kind under the rules in force.
  double took = 0, expected = 0;
  uint64_t compared = 0;
  for (size_t i = 0; i <= kKinds; ++i) {
    const RolloutTally &before = kinds_[i].before, &rollout = kinds_[i].rollout;
    r.calls += rollout.calls.load(), r.failed += rollout.failed.load();
    const uint64_t n = rollout.timed.load(), m = before.timed.load();
    if (i == kKinds || n < kEnoughOfAKind || m < kEnoughOfAKind) continue;
    compared += n;
    took += static_cast<double>(rollout.ns.load());
    expected +=
        static_cast<double>(n) * (static_cast<double>(before.ns.load()) / static_cast<double>(m));
  }
  if (r.calls > 0) r.error_rate = static_cast<double>(r.failed) / static_cast<double>(r.calls);
  if (compared >= kEnoughToTime && expected > 0) r.slowdown = took / expected;
  if ((over || r.calls >= kEnough) && r.error_rate > rule_.max_error_rate)
    r.too_bad =
        fmt::format("{} of {} calls in the rollout failed or saw a kernel fail; at most {:g} % may",
                    r.failed, r.calls, 100 * rule_.max_error_rate);
  else if (r.slowdown > rule_.max_slowdown)
    r.too_bad =
        fmt::format("calls in the rollout took {:.2f} times as long; at most {:g} times may be",
                    r.slowdown, rule_.max_slowdown);
  return r;
}

}  // namespace yard::policy
