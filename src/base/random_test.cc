// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace yard::base {
namespace {

TEST(Random, OneInNIsTheShareOfNAtRandom) {
  constexpr int kCalls = 100'000;
  for (const uint64_t n : {2u, 10u, 100u}) {
    int sampled = 0;
    for (int i = 0; i < kCalls; ++i) sampled += one_in(n);
    // The tolerance is more than six standard deviations.
    const double expected = kCalls / static_cast<double>(n);
    EXPECT_NEAR(sampled, expected, 7 * std::sqrt(expected)) << n;
  }
  EXPECT_TRUE(one_in(0));
  EXPECT_TRUE(one_in(1));
}

// A loop over layers has a period, and each of its calls must get its share.
TEST(Random, EveryCallOfALoopIsSampled) {
  constexpr int kPeriod = 10, kRounds = 2000;
  int sampled[kPeriod] = {};
  for (int i = 0; i < kPeriod * kRounds; ++i) sampled[i % kPeriod] += one_in(kPeriod);
  for (const int n : sampled) EXPECT_NEAR(n, kRounds / kPeriod, 100);
}

TEST(Random, ThreadsAndForkedChildrenHaveSeedsOfTheirOwn) {
  const InChild watched([] {});
  std::vector<uint64_t> drawn(8);
  std::vector<std::thread> threads;
  for (uint64_t& to : drawn) threads.emplace_back([&to] { to = thread_random(); });
  for (std::thread& t : threads) t.join();
  thread_random();  // a sequence that children must not continue
  for (int i = 0; i < 4; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const uint64_t own = thread_random();
      _exit(::write(ends[1], &own, sizeof own) == sizeof own ? 0 : 1);
    }
    uint64_t own = 0;
    ASSERT_EQ(::read(ends[0], &own, sizeof own), static_cast<ssize_t>(sizeof own));
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ends[0]), ::close(ends[1]);
    drawn.push_back(own);
  }
  drawn.push_back(thread_random());
  EXPECT_EQ(std::set<uint64_t>(drawn.begin(), drawn.end()).size(), drawn.size());
}

TEST(Random, UnitIsBelowOne) {
  for (int i = 0; i < 10'000; ++i) {
    const double u = random_unit();
    ASSERT_TRUE(u >= 0 && u < 1) << u;
  }
}

}  // namespace
}  // namespace yard::base
