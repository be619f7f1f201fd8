// SPDX-License-Identifier: Apache-2.0
// Tests changes of a board from outside: manual operations, replaced backends, lost devices and
// disabled breakers.
#include "health/board.h"

#include <gtest/gtest.h>

#include "health/testing.h"

namespace yard::health {
namespace {

using namespace std::chrono_literals;
using namespace testing;

TEST(Board, AManualOpeningIsClosedOnlyManually) {
  Board board;
  const Key key = key_of();
  EXPECT_TRUE(board->open(key, "maintenance", t0));
  EXPECT_EQ(state_of(board, key_of("default.simd", 77)), kOpen);
  EXPECT_EQ(board->next_change(), std::nullopt);
  EXPECT_FALSE(board->advance(t0 + 1000h));
  EXPECT_TRUE(board->close(key, t0 + 1001h));
  EXPECT_TRUE(all_closed(board));
  EXPECT_FALSE(board->close(key, t0));
}

TEST(Board, CloseKeepsRepeatsAndResetForgetsThem) {
  Board board;
  const Key key = key_of();
  fail_times(board, key, 5, t0);
  EXPECT_TRUE(board->close(key, t0));
  fail_times(board, key, 5, t0);
  EXPECT_EQ(board->next_change(), t0 + 60s);
  EXPECT_TRUE(board->close(key, t0, true));
  fail_times(board, key, 5, t0);
  EXPECT_EQ(board->next_change(), t0 + 30s);
}

TEST(Board, ANewVersionOfABackendStartsWithClosedBreakers) {
  Board board;
  const Key failed = key_of("vendor.acme"), other = key_of("vendor.else"),
            manual = key_of("vendor.acme", 8, "softmax");
  fail_times(board, failed, 5, t0), fail_times(board, other, 5, t0);
  EXPECT_TRUE(board->open(manual, "maintenance", t0));
  EXPECT_TRUE(board->replaced("acme", t0));
  EXPECT_EQ(state_of(board, failed), kClosed);
  EXPECT_EQ(state_of(board, other), kOpen);
  EXPECT_EQ(state_of(board, manual), kOpen);
  EXPECT_FALSE(board->replaced("acme", t0));
  // Failures of the old version are forgotten: five new failures open the breaker for the shortest
  // time.
  fail_times(board, failed, 4, t0 + 1s);
  EXPECT_EQ(state_of(board, failed), kClosed);
  fail_times(board, failed, 1, t0 + 1s);
  EXPECT_EQ(state_of(board, failed), kOpen);
  EXPECT_EQ(board->close(other, t0 + 1s), true);
  EXPECT_EQ(board->next_change(), t0 + 31s);
}

TEST(Board, ALostDeviceIsExcludedUntilItIsBack) {
  Board board;
  const Device gpu{2, 1};
  const Key key = key_of("vendor.cuda", 8, "rms_norm", gpu);
  EXPECT_TRUE(board->fault(key, ErrorClass::kDeviceLost, "fell off the bus", t0).changed);
  EXPECT_FALSE(board->fault(key, ErrorClass::kDeviceLost, "fell off the bus", t0).changed);
  EXPECT_TRUE(board->snapshot()->is_lost(gpu));
  EXPECT_FALSE(board->snapshot()->is_lost({2, 0}));
  EXPECT_FALSE(board->advance(t0 + 100h)) << "time does not bring it back";
  EXPECT_TRUE(board->device_back(gpu, t0));
  EXPECT_FALSE(board->device_back(gpu, t0));
  EXPECT_TRUE(all_closed(board));
}

TEST(Board, RestartingForgetsAllButTheSettings) {
  BreakerSettings s;
  s.failure_threshold = 2;
  Board board(s);
  fail_times(board, key_of(), 2, t0);
  board->device_lost({2, 0}, "", t0);
  board->record_failure("x", ErrorClass::kFault, "", t0);
  board->restart();
  const HealthReport r = board->report({}, t0);
  EXPECT_TRUE(r.kernels.empty() && r.backends.empty() && r.breakers.opened == 0);
  EXPECT_TRUE(all_closed(board) && !board.has_events());
  EXPECT_EQ(board->settings(), s);
}

TEST(Board, DisabledItCountsAndOpensNothing) {
  Board board;
  fail_times(board, key_of(), 5, t0);
  board->open(key_of("reference.cpp"), {}, t0);
  BreakerSettings off;
  off.enabled = false;
  EXPECT_TRUE(board->set_settings(off, t0));
  EXPECT_EQ(state_of(board, key_of()), kClosed);
  EXPECT_EQ(state_of(board, key_of("reference.cpp")), kOpen) << "manually";
  fail_times(board, key_of(), 50, t0);
  EXPECT_EQ(state_of(board, key_of()), kClosed);
  EXPECT_EQ(board->report({}, t0).kernels[0].failures.of(ErrorClass::kFault), 55u);
}

}  // namespace
}  // namespace yard::health
