// SPDX-License-Identifier: Apache-2.0
// Tests health reports: which kernels failed how often and why, and which breakers are open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/health.h>

#include "health/board.h"
#include "health/testing.h"

namespace yard::health {
namespace {

using namespace std::chrono_literals;
using namespace testing;

TEST(HealthReport, SumsKernelsAndRecordedOutcomes) {
  Board board;
  const Key simd = key_of("default.simd"), other = key_of("default.simd", 64, "silu");
  board->fault(simd, ErrorClass::kTransient, "out of memory", t0);
  board->fault(simd, ErrorClass::kCaller, "not his fault", t0 + 1s);
  board->fault(other, ErrorClass::kFault, "it broke", t0 + 2s);
  board->record_success("simd", 10);
  board->record_failure("simd", ErrorClass::kFault, "the driver says no", t0 + 1s);
  board->record_failure("remote", ErrorClass::kTransient, "no answer", t0 + 3s);
  const Successes successes[] = {{"rms_norm", "default.simd", "simd", 19},
                                 {"rms_norm", "reference.cpp", "cpp", 7}};
  const HealthReport r = board->report(successes, t0 + 10s);

  ASSERT_EQ(r.kernels.size(), 3u);
  EXPECT_EQ(r.kernels[0].kernel, "default.simd");
  EXPECT_EQ(r.kernels[0].successes, 19u);
  EXPECT_EQ(r.kernels[0].failures.counted(), 1u) << "the caller's mistake costs no health";
  EXPECT_EQ(r.kernels[0].failures.of(ErrorClass::kCaller), 1u);
  EXPECT_DOUBLE_EQ(r.kernels[0].failure_rate(), 0.05);
  EXPECT_EQ(r.kernels[1].kernel, "reference.cpp");
  EXPECT_EQ(r.kernels[1].failure_rate(), 0);
  EXPECT_FALSE(r.kernels[1].last_error_at);
  EXPECT_EQ(r.kernels[2].op, "silu");
  EXPECT_DOUBLE_EQ(r.kernels[2].failure_rate(), 1);

  ASSERT_EQ(r.backends.size(), 3u);
  EXPECT_EQ(r.backends[0].backend, "cpp");
  EXPECT_EQ(r.backends[1].backend, "remote");
  EXPECT_EQ(r.backends[1].last_error, "no answer");
  const BackendHealth& all = r.backends[2];
  EXPECT_EQ(all.successes, 29u);
  EXPECT_EQ(all.failures.counted(), 3u);
  EXPECT_EQ(all.last_error, "it broke") << "the latest of all";
  EXPECT_EQ(all.last_error_at, t0 + 2s);
}

TEST(HealthReport, ShowsOpenBreakersAndCooldowns) {
  Board board;
  fail_times(board, key_of(), 5, t0);
  board->open(key_of("vendor.x"), "maintenance", t0);
  board->device_lost({2, 1}, "fell off the bus", t0);
  const HealthReport r = board->report({}, t0 + 12s);
  ASSERT_EQ(r.kernels.size(), 2u);
  ASSERT_EQ(r.kernels[0].open.size(), 1u);
  const KernelHealth::Breaker& b = r.kernels[0].open[0];
  EXPECT_EQ(b.key, "f32 f32, sizes 8-15 4096-8191, cpu");
  EXPECT_EQ(b.state, BreakerState::kOpen);
  EXPECT_EQ(b.until, t0 + 30s);
  EXPECT_EQ(b.repeats, 1u);
  EXPECT_TRUE(r.kernels[1].open[0].key.empty());
  EXPECT_TRUE(r.kernels[1].open[0].manual);
  EXPECT_FALSE(r.kernels[1].open[0].until);
  EXPECT_EQ(r.breakers.opened, 2u);
  EXPECT_EQ(to_string(r, t0 + 12s),
            "device cuda:1: lost\n"
            "backend simd: 0 ok, 5 failed (100.0 %), last 12s ago: it broke\n"
            "backend x: 0 ok, 0 failed (0.0 %)\n"
            "rms_norm default.simd: 0 ok, 5 failed (100.0 %), last 12s ago: it broke\n"
            "  f32 f32, sizes 8-15 4096-8191, cpu: open, probes in 18s\n"
            "rms_norm vendor.x: 0 ok, 0 failed (0.0 %)\n"
            "  all calls: open (manual override: maintenance)\n");
}

TEST(HealthReport, LongTextsAndUnknownClassesAreHandled) {
  Board board;
  board->record_failure("x", static_cast<ErrorClass>(99), std::string(100'000, 'y'), t0);
  board->fault(key_of(), ErrorClass::kFault, std::string(100'000, 'y'), t0);
  const HealthReport r = board->report({}, t0);
  EXPECT_EQ(r.backends[1].failures.of(ErrorClass::kFault), 1u);
  EXPECT_LT(r.kernels[0].last_error.size(), 1000u);
}

}  // namespace
}  // namespace yard::health
