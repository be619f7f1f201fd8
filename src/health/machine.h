// SPDX-License-Identifier: Apache-2.0
// The states of one breaker and what moves them, without lock, clock and probe slots: CircuitBreaker and the board put
// those around it. docs/concepts/breakers.md is the model in words.
#pragma once

#include <yard/health.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace yard::health {

struct Machine {
  using Time = std::chrono::steady_clock::time_point;

  Time until{};          // open: when probes begin; half-open: when the next period does
  Time since{};          // closed: when the present time without faults began
  uint16_t faults = 0;   // closed: in a row
  uint16_t repeats = 0;  // openings that are not yet forgiven; use repeats_at()
  BreakerState state = BreakerState::kClosed;
  bool by_hand = false;

  // A full time of health takes one repeat back.
  uint32_t repeats_at(const BreakerSettings& s, Time now) const {
    if (state != BreakerState::kClosed || repeats == 0 || now <= since) return repeats;
    const auto forgiven = (now - since) / s.decay;
    return forgiven >= repeats ? 0 : repeats - static_cast<uint32_t>(forgiven);
  }

  // Only when closed. Whether there are now enough faults in a row.
  bool fault(const BreakerSettings& s, Time now) {
    repeats = static_cast<uint16_t>(repeats_at(s, now));
    since = std::max(since, now);
    if (faults < kMost) ++faults;
    return faults >= s.failure_threshold;
  }

  void open(const BreakerSettings& s, Time now) {
    const uint32_t before = repeats_at(s, now);
    repeats = static_cast<uint16_t>(std::min<uint32_t>(before + 1, kMost));
    state = BreakerState::kOpen;
    until = now + cooldown_after(s, before);
  }

  // Says nothing about health, so it is no repeat.
  void open_by_hand(const BreakerSettings& s, Time now,
                    std::optional<std::chrono::nanoseconds> hold) {
    repeats = static_cast<uint16_t>(repeats_at(s, now));
    state = BreakerState::kOpen;
    by_hand = true;
    until = hold && *hold < Time::max() - now ? now + *hold : Time::max();
  }

  void begin_period(const BreakerSettings& s, Time now) {
    state = BreakerState::kHalfOpen;
    by_hand = false;
    until = now + s.cooldown;
  }

  void close(Time now) {
    faults = 0;
    if (state == BreakerState::kClosed) return;  // its time of health goes on
    state = BreakerState::kClosed;
    by_hand = false;
    since = now;
    until = {};
  }

  // Whether forgetting it makes no difference.
  bool blank(const BreakerSettings& s, Time now) const {
    return state == BreakerState::kClosed && faults == 0 && repeats_at(s, now) == 0;
  }

  static std::chrono::nanoseconds cooldown_after(const BreakerSettings& s, uint32_t repeats) {
    auto ns = static_cast<double>(s.cooldown.count());
    const auto cap = static_cast<double>(s.cooldown_cap.count());
    if (s.cooldown_growth > 1)
      for (; repeats > 0 && ns < cap; --repeats) ns *= s.cooldown_growth;
    return ns < cap ? std::chrono::nanoseconds(static_cast<int64_t>(ns)) : s.cooldown_cap;
  }

 private:
  static constexpr uint16_t kMost = 60'000;
};

// Which of the times that a breaker would open are only reported: an even share of them, the first ones not.
class DryRun {
 public:
  bool only_report(uint32_t percent) {
    owed_ += percent;
    if (owed_ < 100) return false;
    owed_ -= 100;
    return true;
  }

 private:
  uint32_t owed_ = 0;
};

}  // namespace yard::health
