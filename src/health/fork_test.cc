// SPDX-License-Identifier: Apache-2.0
// Forked children: breakers are closed there, and no lock that a thread of the parent held is in the way.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/testing_fork.h"
#include "health/board.h"
#include "health/testing.h"

namespace yard::health {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using base::true_in_child;

// Opens, waits, tries, closes.
bool works(Board& board) {
  const Key key = key_of("child.kernel");
  fail_times(board, key, board->settings().failure_threshold, t0);
  if (state_of(board, key) != BreakerState::kOpen || !board->advance(t0 + 30s)) return false;
  for (int i = 0; i < 2; ++i)
    if (!try_once(board, key, ErrorClass::kOk, t0 + 31s)) return false;
  return board->snapshot()->empty() && board->take_events().size() == 3;
}

TEST(HealthFork, AForkedChildRestartsWithTheSameSettings) {
  Board board;
  BreakerSettings s;
  s.failure_threshold = 2;
  board->set_settings(s, t0);
  fail_times(board, key_of(), 2, t0);
  board->device_lost({2, 0}, "", t0);
  board->record_failure("x", ErrorClass::kFault, "", t0);
  EXPECT_TRUE(true_in_child([&] {
    board.abandon();
    const HealthReport r = board->report({}, t0);
    return board->snapshot()->empty() && board->settings() == s && !board.has_events() &&
           r.kernels.empty() && r.backends.empty() && r.breakers.opened == 0 && works(board);
  }));
  EXPECT_EQ(state_of(board, key_of()), BreakerState::kOpen) << "the parent is undisturbed";
}

// No failures are counted there, so no success needs to be reported.
TEST(HealthFork, BitsOfTheParentAreClearedByTheFirstSuccess) {
  Board board;
  std::atomic<uint64_t> calls{0}, results{0};
  const Suspects suspects{&calls, &results};
  board->fault(key_of(), ErrorClass::kFault, "it broke", t0, {}, suspects);
  EXPECT_TRUE(true_in_child([&] {
    board.abandon();
    return board->success(key_of(), t0, false, suspects).direct_changed && calls == 0;
  }));
  EXPECT_NE(calls, 0u);
}

TEST(HealthFork, ALockHeldAtForkDoesNotDeadlock) {
  BreakerSettings s;
  s.failure_min_calls = 2000;
  Board board(s);
  for (int i = 0; i < 1000; ++i) fail_times(board, key_of("k" + std::to_string(i)), 5, t0);
  std::atomic<bool> stop{false};
  // Reports of a thousand kernels: the lock is hardly ever free.
  std::thread busy([&] {
    for (uint32_t i = 0; !stop; ++i) {
      board->report({}, t0);
      s.failure_min_calls = 2000 + i % 2;
      board->set_settings(s, t0);
    }
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(true_in_child([&] {
      board.abandon();
      return board->settings().failure_min_calls / 2 == 1000 && works(board);
    }));
  stop = true;
  busy.join();
}

TEST(HealthFork, ACircuitBreakerIsClosedInAForkedChild) {
  CircuitBreaker breaker("x");
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      breaker.open(t0);
      breaker.take_events();
    }
  });
  while (breaker.state(t0) != BreakerState::kOpen) std::this_thread::yield();
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(true_in_child([&] {
      if (breaker.state(t0) != BreakerState::kClosed) return false;
      for (int k = 0; k < 5; ++k) breaker.try_acquire(t0).failure(t0);
      return breaker.state(t0) == BreakerState::kOpen && breaker.counters().failures == 5;
    }));
  stop = true;
  busy.join();
}

TEST(HealthFork, AResultOfTheParentIsLateInAForkedChild) {
  BreakerSettings s;
  s.failure_threshold = 1;
  CircuitBreaker breaker("x", s);
  BreakerPermit permit = breaker.try_acquire(t0);
  EXPECT_TRUE(true_in_child([&] {
    permit.failure(t0);
    return breaker.state(t0) == BreakerState::kClosed && breaker.counters().late == 1;
  }));
  permit.failure(t0);
  EXPECT_EQ(breaker.state(t0), BreakerState::kOpen);
}

}  // namespace
}  // namespace yard::health
