// SPDX-License-Identifier: Apache-2.0
// Uses a circuit breaker alone, to guard something that may keep failing.
#include <yard/health.h>

#include <chrono>
#include <cstdio>

#include "check.h"

namespace {

bool answer = false;
bool query() { return answer; }

}  // namespace

int main() {
  using namespace std::chrono_literals;
  // [settings]
  yard::BreakerSettings settings;
  settings.failure_threshold = 3;
  settings.cooldown = 10s;
  validate(settings).or_throw();
  yard::CircuitBreaker breaker("database", settings);
  // [/settings]

  // [call]
  using Clock = std::chrono::steady_clock;
  const auto ask = [&](Clock::time_point now) {
    yard::BreakerPermit permit = breaker.try_acquire(now);
    if (!permit) return false;  // do without
    if (query()) {
      permit.success(now);
      return true;
    }
    permit.failure(now, "no answer");
    return false;
  };
  // [/call]

  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 100; ++i) CHECK(!ask(start));
  CHECK(breaker.counters().admitted == 3);
  CHECK(breaker.state(start) == yard::BreakerState::kOpen);

  answer = true;
  CHECK(!ask(start + 9s));
  CHECK(ask(start + 10s) && ask(start + 11s));
  CHECK(breaker.state(start + 11s) == yard::BreakerState::kClosed);

  // [events]
  for (const yard::BreakerEvent& event : breaker.take_events()) std::puts(to_string(event).c_str());
  // [/events]
  return 0;
}
