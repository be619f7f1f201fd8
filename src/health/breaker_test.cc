// SPDX-License-Identifier: Apache-2.0
// Tests CircuitBreaker. The tests of LayerZeroDefects are named after defects of another breaker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/health.h>

#include <functional>
#include <limits>

#include "base/testing_fork.h"
#include "health/breaker.h"
#include "health/testing.h"

namespace yard {
namespace {

using namespace std::chrono_literals;
using namespace health::testing;
using Time = CircuitBreaker::Time;
using ::testing::HasSubstr;

void succeed(CircuitBreaker& b, Time now) { b.try_acquire(now).success(now); }
void fail(CircuitBreaker& b, Time now, int times = 1) {
  for (int i = 0; i < times; ++i) b.try_acquire(now).failure(now, "no answer");
}

TEST(CircuitBreaker, OpensProbesAndCloses) {
  CircuitBreaker b("database");
  fail(b, t0, 4);
  EXPECT_EQ(b.state(t0), kClosed);
  fail(b, t0);
  EXPECT_EQ(b.state(t0), kOpen);
  EXPECT_EQ(b.open_until(t0), t0 + 30s);
  EXPECT_FALSE(b.try_acquire(t0 + 29s));
  EXPECT_EQ(b.state(t0 + 30s), kHalfOpen);
  EXPECT_EQ(b.open_until(t0 + 30s), std::nullopt);
  BreakerPermit probe = b.try_acquire(t0 + 30s);
  ASSERT_TRUE(probe);
  EXPECT_TRUE(probe.is_probe());
  probe.success(t0 + 31s);
  EXPECT_EQ(b.state(t0 + 31s), kHalfOpen);
  succeed(b, t0 + 32s);
  EXPECT_EQ(b.state(t0 + 32s), kClosed);
  const CircuitBreaker::Counters c = b.counters();
  EXPECT_EQ(c.admitted, 7u);
  EXPECT_EQ(c.refused, 1u);
  EXPECT_EQ(c.successes, 2u);
  EXPECT_EQ(c.failures, 5u);
  EXPECT_EQ(c.opened, 1u);
}

TEST(CircuitBreaker, ASuccessEndsConsecutiveFaults) {
  BreakerSettings s;
  s.failure_percent = 0;
  CircuitBreaker b("x", s);
  for (int i = 0; i < 50; ++i) {
    fail(b, t0, 4);
    succeed(b, t0);
  }
  EXPECT_EQ(b.state(t0), kClosed);
}

TEST(CircuitBreaker, APercentageOfFailuresOpensToo) {
  BreakerSettings s;
  s.failure_percent = 30, s.failure_min_calls = 10, s.failure_window = 1s;
  CircuitBreaker b("x", s), slow("y", s);
  int calls = 0;
  for (; calls < 100 && b.state(t0) == kClosed; ++calls)
    if (calls % 3 == 0)
      fail(b, t0, 1);
    else
      succeed(b, t0);
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(b.take_events().at(0).text, "4 of 10 calls failed, the last: no answer");
  for (int i = 0; i < 100; ++i)
    if (i % 3 == 0)
      fail(slow, t0 + i * 200ms, 1);
    else
      succeed(slow, t0 + i * 200ms);
  EXPECT_EQ(slow.state(t0 + 20s), kClosed) << "no window has enough calls";
}

TEST(CircuitBreaker, ADroppedPermitHasNoEffect) {
  CircuitBreaker b("x");
  fail(b, t0, 4);
  { const BreakerPermit dropped = b.try_acquire(t0); }
  fail(b, t0);
  EXPECT_EQ(b.state(t0), kOpen);
  { const BreakerPermit dropped = b.try_acquire(t0 + 30s); }
  BreakerPermit again = b.try_acquire(t0 + 30s);
  EXPECT_TRUE(again) << "the place is free again";
  BreakerPermit moved = std::move(again);
  EXPECT_FALSE(again);  // NOLINT: that is the question
  moved = BreakerPermit();
  EXPECT_TRUE(b.try_acquire(t0 + 30s));
}

TEST(CircuitBreaker, AManualOpeningIsClosedOnlyManually) {
  CircuitBreaker b("x");
  b.open(t0, "maintenance");
  EXPECT_EQ(b.state(t0 + 10000h), kOpen);
  EXPECT_EQ(b.open_until(t0), std::nullopt);
  EXPECT_FALSE(b.try_acquire(t0 + 10000h));
  b.close(t0 + 1s);
  EXPECT_EQ(b.state(t0 + 1s), kClosed);
  b.open(t0, {}, 5s);
  EXPECT_EQ(b.state(t0 + 5s), kHalfOpen);
  const std::vector<BreakerEvent> events = b.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(to_string(events[0]),
            "x: opened until it is closed manually: manual override: maintenance");
  EXPECT_EQ(to_string(events[1]), "x: closed");
  EXPECT_EQ(to_string(events[2]), "x: opened for 5s: manual override");
}

TEST(CircuitBreaker, ResetForgetsRepeatsAndCloseKeepsThem) {
  CircuitBreaker b("x");
  fail(b, t0, 5);
  b.close(t0);
  fail(b, t0, 5);
  EXPECT_EQ(b.open_until(t0), t0 + 60s);
  b.reset(t0);
  fail(b, t0, 5);
  EXPECT_EQ(b.open_until(t0), t0 + 30s);
}

TEST(CircuitBreaker, TextsAndEventsAreBounded) {
  BreakerSettings s;
  s.failure_threshold = 1;
  CircuitBreaker b("x", s);
  for (int i = 0; i < 1000; ++i) {
    b.try_acquire(t0).failure(t0, std::string(100'000, 'x'));
    b.close(t0);
  }
  EXPECT_EQ(b.counters().events_dropped, 2000 - kBreakerEvents);
  const auto events = b.take_events();
  EXPECT_EQ(events.size(), kBreakerEvents);
  for (const BreakerEvent& e : events) EXPECT_LT(e.text.size(), 1000u);
}

TEST(CircuitBreaker, IsClosedInAForkedChildWhereResultsOfItsParentAreLate) {
  BreakerSettings s;
  s.failure_threshold = 1;
  CircuitBreaker b("x", s);
  BreakerPermit early = b.try_acquire(t0);
  fail(b, t0);
  EXPECT_TRUE(base::true_in_child([&] {
    early.failure(t0);
    if (b.state(t0) != kClosed || b.counters().late != 1) return false;
    fail(b, t0);
    return b.state(t0) == kOpen && b.counters().opened == 1;
  }));
  EXPECT_EQ(b.state(t0), kOpen);
}

// ---- The defects of LayerZero's breaker ----

TEST(LayerZeroDefects, half_open_does_not_admit_everyone) {
  CircuitBreaker b("x");
  fail(b, t0, 5);
  BreakerPermit first = b.try_acquire(t0 + 30s);
  EXPECT_TRUE(first);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(b.try_acquire(t0 + 30s)) << "one at a time";
  // A period admits three probes, however they end.
  first = {};
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(b.try_acquire(t0 + 30s));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(b.try_acquire(t0 + 59s));
  EXPECT_TRUE(b.try_acquire(t0 + 60s));
}

TEST(LayerZeroDefects, late_success_does_not_close) {
  CircuitBreaker b("x");
  BreakerPermit early = b.try_acquire(t0), earlier = b.try_acquire(t0);
  fail(b, t0, 5);
  early.success(t0 + 1s);
  EXPECT_EQ(b.state(t0 + 1s), kOpen);
  BreakerPermit probe = b.try_acquire(t0 + 30s);
  earlier.success(t0 + 31s);
  probe.success(t0 + 31s);
  EXPECT_EQ(b.state(t0 + 31s), kHalfOpen) << "only one of the two successes came from a probe";
  EXPECT_EQ(b.counters().late, 2u);
}

TEST(LayerZeroDefects, late_failure_does_not_reopen) {
  CircuitBreaker b("x");
  BreakerPermit early = b.try_acquire(t0);
  fail(b, t0, 5);
  BreakerPermit probe = b.try_acquire(t0 + 30s);
  early.failure(t0 + 31s);
  EXPECT_EQ(b.state(t0 + 31s), kHalfOpen);
}

TEST(LayerZeroDefects, looking_does_not_change_state) {
  CircuitBreaker b("x");
  fail(b, t0, 5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(b.state(t0 + 40s), kHalfOpen);
    EXPECT_EQ(b.state(t0 + 20s), kOpen) << "a look into the future is only a look";
  }
  EXPECT_TRUE(b.take_events().size() == 1u) << "and nothing has become half-open by it";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(b.try_acquire(t0 + 30s)) << "and used up no probe";

  health::Board board;
  const health::Key key = health::testing::key_of();
  health::testing::fail_times(board, key, 5, t0);
  for (int i = 0; i < 10; ++i) {
    const auto snapshot = board->snapshot();
    board->report({}, t0 + 100s);
    board->next_change();
    EXPECT_EQ(health::testing::state_of(board, key), kOpen);
    EXPECT_EQ(board->snapshot(), snapshot);
  }
}

TEST(LayerZeroDefects, failed_fallbacks_do_not_count_twice) {
  health::Board board;
  const health::Key first = health::testing::key_of("vendor.fast"),
                    fallback = health::testing::key_of("reference.cpp");
  // In four calls both kernels fail, so each kernel has failed four times, not eight.
  for (int i = 0; i < 4; ++i) {
    health::testing::fail(board, first, t0);
    health::testing::fail(board, fallback, t0);
  }
  EXPECT_TRUE(all_closed(board));
  for (const KernelHealth& k : board->report({}, t0).kernels)
    EXPECT_EQ(k.failures.of(ErrorClass::kFault), 4u);
}

TEST(LayerZeroDefects, every_setting_is_read) {
  // Each setting must change the outcome.
  const auto outcome = [](const std::function<void(BreakerSettings&)>& change) {
    BreakerSettings s;
    change(s);
    health::Board board(s);
    std::string text;
    Time now = t0;
    for (int round = 0; round < 12; ++round) {
      for (uint64_t key = 0; key < 5; ++key) {
        const health::Key k = health::testing::key_of("default.simd", uint64_t{1} << key);
        for (int i = 0; i < 6; ++i) {
          const bool quiet = round % 4 == 1;  // a time of health
          if (health::testing::state_of(board, k) != kClosed)
            health::testing::try_once(board, k,
                                      round % 3 == 0 ? ErrorClass::kFault : ErrorClass::kOk, now);
          else if (!quiet)
            health::testing::fail(board, k, now);
        }
      }
      text += to_string(board->report({}, now), now) + "\n";
      now += 45s * (1 + round * round);
      board->advance(now);
    }
    return text + std::to_string(board->report({}, t0).breakers.untracked);
  };
  const std::string usual = outcome([](BreakerSettings&) {});
  const std::function<void(BreakerSettings&)> changes[] = {
      [](BreakerSettings& s) { s.enabled = false; },
      [](BreakerSettings& s) { s.failure_threshold = 3; },
      [](BreakerSettings& s) { s.cooldown = 10s; },
      [](BreakerSettings& s) { s.cooldown_growth = 1.5; },
      [](BreakerSettings& s) { s.cooldown_cap = 31s; },
      [](BreakerSettings& s) { s.success_threshold = 3; },
      [](BreakerSettings& s) { s.half_open_max_calls = 1; },
  };
  for (size_t i = 0; i < std::size(changes); ++i)
    EXPECT_NE(outcome(changes[i]), usual) << "setting " << i;
}

// ---- Settings ----

TEST(BreakerSettings, DefaultsAreValidAndEveryInvalidValueIsNamed) {
  EXPECT_TRUE(validate(BreakerSettings()).ok());
  const auto message = [](const std::function<void(BreakerSettings&)>& change) {
    BreakerSettings s;
    change(s);
    return std::string(validate(s).message());
  };
  EXPECT_EQ(message([](auto& s) { s.failure_threshold = 0; }),
            "failure_threshold is 0; expected from 1 to 10000");
  EXPECT_EQ(message([](auto& s) { s.failure_percent = 101; }),
            "failure_percent is 101; expected from 0 to 100");
  EXPECT_THAT(message([](auto& s) { s.failure_min_calls = 0; }), HasSubstr("failure_min_calls is"));
  EXPECT_THAT(message([](auto& s) { s.failure_window = 0s; }), HasSubstr("failure_window is"));
  EXPECT_EQ(message([](auto& s) { s.cooldown = 0s; }),
            "cooldown is 0s; expected from 0.001s to 86400s");
  EXPECT_THAT(message([](auto& s) { s.cooldown_growth = 0.9; }), HasSubstr("cooldown_growth is"));
  EXPECT_THAT(
      message([](auto& s) { s.cooldown_growth = std::numeric_limits<double>::quiet_NaN(); }),
      HasSubstr("cooldown_growth is"));
  EXPECT_EQ(message([](auto& s) { s.cooldown_cap = 29s; }),
            "cooldown_cap is 29s; expected no less than cooldown, 30s");
  EXPECT_THAT(message([](auto& s) { s.success_threshold = 0; }), HasSubstr("success_threshold"));
  EXPECT_THAT(message([](auto& s) { s.half_open_max_calls = 0; }), HasSubstr("half_open_max"));
}

}  // namespace
}  // namespace yard
