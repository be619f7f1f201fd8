// SPDX-License-Identifier: Apache-2.0
// Tests breakers under many threads: one probe at a time, and no admission while open.
#include <gtest/gtest.h>
#include <yard/health.h>

#include <atomic>
#include <thread>
#include <vector>

#include "health/board.h"
#include "health/testing.h"

namespace yard::health {
namespace {

using namespace std::chrono_literals;
using namespace testing;

constexpr int kThreads = 8;

template <class F>
void on_threads(F f) {
  std::vector<std::thread> all;
  for (int i = 0; i < kThreads; ++i) all.emplace_back([&f, i] { f(i); });
  for (std::thread& t : all) t.join();
}

// Counts how often two threads are inside at once.
class Alone {
 public:
  void enter() {
    if (inside_.fetch_add(1) != 0) ++crowds;
    ++entered;
  }
  void leave() { inside_.fetch_sub(1); }
  std::atomic<int> entered{0}, crowds{0};

 private:
  std::atomic<int> inside_{0};
};

TEST(BreakerThreads, OneProbeAtATimeWithManyThreads) {
  BreakerSettings s;
  s.half_open_max_calls = 1'000;
  s.success_threshold = 999;
  Board board(s);
  const Key key = key_of();
  fail_times(board, key, 5, t0);
  board->advance(t0 + 30s);
  const auto probes = probes_of(board, key);
  Alone alone;
  on_threads([&](int) {
    for (int i = 0; i < 5'000; ++i) {
      if (!probes->try_enter()) continue;
      alone.enter();
      std::this_thread::yield();
      alone.leave();
      probes->leave(ErrorClass::kOk);
    }
  });
  EXPECT_EQ(alone.crowds, 0);
  EXPECT_GT(alone.entered, 0);
  EXPECT_LE(alone.entered, 1'000);
}

TEST(BreakerThreads, AfterAFailedProbeNoneEntersUntilTheNextPhase) {
  Board board;
  const Key key = key_of();
  fail_times(board, key, 5, t0);
  Time now = t0;
  for (int round = 0; round < 100; ++round) {
    now = *board->next_change();
    ASSERT_TRUE(board->advance(now));
    const auto probes = probes_of(board, key);
    std::atomic<int> failed{0}, changed{0};
    on_threads([&](int) {
      for (int i = 0; i < 10; ++i) {
        if (!probes->try_enter()) continue;
        ++failed;
        probes->leave(ErrorClass::kFault);
        changed += board->fault(key, ErrorClass::kFault, "", now).changed ? 1 : 0;
      }
    });
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(changed, 1);
    EXPECT_EQ(state_of(board, key), BreakerState::kOpen);
  }
}

// Callers act like the runtime: they read a snapshot, enter the probe slots, and report the
// outcome. Meanwhile time advances, and the breaker is opened and closed manually. Its probe slots
// stay the same object, so that probes never run concurrently.
TEST(BreakerThreads, ProbesAreExclusiveThroughEveryChange) {
  Board board;
  const Key key = key_of();
  std::atomic<int64_t> second{0};
  std::atomic<int> running{kThreads - 2};
  Alone alone;
  const auto now = [&] { return t0 + std::chrono::seconds(second.load()); };
  const auto call = [&](int n) {
    const auto probes = probes_of(board, key);
    if (probes == nullptr) {
      if (state_of(board, key) == BreakerState::kClosed) fail(board, key, now());
      return;
    }
    if (!probes->try_enter()) return;
    alone.enter();
    const ErrorClass outcome = n % 3 == 0 ? ErrorClass::kFault : ErrorClass::kOk;
    std::this_thread::yield();
    alone.leave();
    const bool decided = probes->leave(outcome);
    if (outcome == ErrorClass::kFault)
      board->fault(key, outcome, "", now());
    else if (decided)
      board->advance(now());
  };
  on_threads([&](int thread) {
    if (thread == 0) {
      while (running > 0) board->advance(t0 + std::chrono::seconds(second += 7));
    } else if (thread == 1) {
      while (running > 0) {
        board->open(key, "", now());
        board->take_events();
        std::this_thread::sleep_for(200us);
        board->close(key, now());
        board->report({}, now());
      }
    } else {
      for (int i = 0; i < 3'000; ++i) call(i + thread);
      --running;
    }
  });
  EXPECT_EQ(alone.crowds, 0);
  EXPECT_GT(board->report({}, t0).breakers.opened, 0u);
}

TEST(BreakerThreads, NoCallIsAdmittedOnceItIsOpen) {
  for (int round = 0; round < 50; ++round) {
    CircuitBreaker breaker("x");
    std::atomic<bool> open{false};
    std::atomic<int> after{0};
    on_threads([&](int) {
      for (int i = 0; i < 100; ++i) {
        const bool known = open.load();
        BreakerPermit permit = breaker.try_acquire(t0);
        if (permit && known) ++after;
        permit.failure(t0);
        if (breaker.state(t0) == BreakerState::kOpen) open = true;
      }
    });
    EXPECT_EQ(after, 0);
    EXPECT_EQ(breaker.state(t0), BreakerState::kOpen);
    EXPECT_EQ(breaker.counters().opened, 1u);
  }
}

}  // namespace
}  // namespace yard::health
