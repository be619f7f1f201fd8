// SPDX-License-Identifier: Apache-2.0
// Tests the cost estimates that plugin.hpp offers to plugins.
#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include <chrono>
#include <thread>

namespace yard::plugin {
namespace {

TEST(BestNs, IsTheFastestOfTheRuns) {
  int runs = 0;
  const double ns = best_ns(
      [&] {
        if (runs++ != 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      },
      4);
  EXPECT_EQ(runs, 4);
  EXPECT_LT(ns, 20e6);
  EXPECT_GE(ns, 1);
}

int g_measured = 0;
int measure() { return ++g_measured * 10; }

TEST(MeasuredOnce, MeasuresOnce) {
  EXPECT_EQ(measured_once<measure>(), 10);
  EXPECT_EQ(measured_once<measure>(), 10);
  EXPECT_EQ(g_measured, 1);
}

TEST(SpeedOfThreads, IsAtMostOneForEachPieceAndProcessor) {
  const double processors = std::max(1u, std::thread::hardware_concurrency());
  EXPECT_EQ(speed_of_threads(0), 1);
  EXPECT_EQ(speed_of_threads(1), 1);
  EXPECT_LE(speed_of_threads(1e9), processors);
  EXPECT_GT(speed_of_threads(1e9), processors / 2);
  EXPECT_EQ(speed_of_threads(processors), speed_of_threads(1e9));
}

TEST(ProductTimes, AreOnLinesThroughTheMeasuredOnes) {
  const ProductTimes times{{2, 9, 37}};
  EXPECT_EQ(times.at(0), 2);
  EXPECT_EQ(times.at(1), 2);
  EXPECT_EQ(times.at(4), 5);
  EXPECT_EQ(times.at(8), 9);
  EXPECT_EQ(times.at(36), 23);
  EXPECT_EQ(times.at(64), 37);
  EXPECT_EQ(times.at(640), 370);
}

}  // namespace
}  // namespace yard::plugin
