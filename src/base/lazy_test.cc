// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <gtest/gtest.h>
#include <yard/abi.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "base/testing_fork.h"

namespace yard::base {
namespace {

TEST(Lazy, IsMadeOnceHoweverManyAsk) {
  static std::atomic<int> made{0};
  static constinit Lazy<int> number([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return new int(++made);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([] { EXPECT_EQ(number.get(), 1); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(number.get(), 1);
  EXPECT_EQ(made, 1);
}

#if !defined(YARD_UNDER_TSAN)  // whose pthread_once knows neither exceptions nor forks
TEST(Lazy, IsAskedForAgainIfItCouldNotBeMade) {
  static int tries = 0;
  static constinit Lazy<int> number([] {
    if (++tries == 1) throw std::runtime_error("not yet");
    return new int(7);
  });
  EXPECT_THROW(number.get(), std::runtime_error);
  EXPECT_EQ(number.get(), 7);
  EXPECT_EQ(tries, 2);
}

TEST(Lazy, IsMadeAnewInAChildWhoseParentWasAtIt) {
  static std::atomic<bool> begun{false}, go_on{false};
  static constinit Lazy<int> number([] {
    for (begun = true; !go_on;) std::this_thread::yield();
    return new int(7);
  });
  std::thread maker([] { EXPECT_EQ(number.get(), 7); });
  while (!begun) std::this_thread::yield();
  EXPECT_TRUE(true_in_child([] {
    go_on = true;
    return number.get() == 7;
  }));
  go_on = true;
  maker.join();
}
#endif

}  // namespace
}  // namespace yard::base
