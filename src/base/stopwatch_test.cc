// SPDX-License-Identifier: Apache-2.0
#include "base/stopwatch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace yard::base {
namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point t) { return static_cast<double>((Clock::now() - t).count()); }

// However long the machine lets the thread wait, both clocks see the same span.
TEST(Stopwatch, AgreesWithTheSteadyClock) {
  for (int i = 0; i < 3; ++i) {
    const auto before = Clock::now();
    Stopwatch watch = Stopwatch::start();
    const auto after = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double least = ns_since(after);
    const auto lap = static_cast<double>(watch.lap());
    const double most = ns_since(before);
    EXPECT_GE(lap, least * 0.98);
    EXPECT_LE(lap, most * 1.02);
  }
}

TEST(Stopwatch, LapsFollowEachOther) {
  Stopwatch watch = Stopwatch::start();
  const auto start = Clock::now();
  int64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t lap = watch.lap();
    ASSERT_GE(lap, 0);
    sum += lap;
  }
  EXPECT_LE(static_cast<double>(sum), ns_since(start) * 1.05 + 1000);
}

}  // namespace
}  // namespace yard::base
