// SPDX-License-Identifier: Apache-2.0
// Counters: sums over threads, ended threads, reused ids, forked children.
#include "base/counters.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace yard::base {
namespace {

void count_here(const Counter& c, int times = 1) {
  for (int i = 0; i < times; ++i) count(base::this_thread(), c.id());
}

TEST(Counters, SumOverThreadsPastAndPresent) {
  Counter a, b;
  constexpr int kThreads = 8, kTimes = 20000;
  std::atomic<int> counted{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      count_here(a, kTimes);
      if (t % 2 == 0) count_here(b, 3);
      ++counted;
      while (!go.load()) std::this_thread::yield();
    });
  // A concurrent total is between 0 and the final sum, and never decreases.
  uint64_t last = 0;
  while (counted.load() < kThreads) {
    const uint64_t now = a.total();
    EXPECT_GE(now, last);
    EXPECT_LE(now, uint64_t{kThreads} * kTimes);
    last = now;
  }
  EXPECT_EQ(a.total(), uint64_t{kThreads} * kTimes);
  EXPECT_EQ(b.total(), uint64_t{kThreads} / 2 * 3);
  go = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(a.total(), uint64_t{kThreads} * kTimes);
  EXPECT_EQ(b.total(), uint64_t{kThreads} / 2 * 3);
  count_here(a);
  EXPECT_EQ(a.total(), uint64_t{kThreads} * kTimes + 1);
}

TEST(Counters, ManyShortThreadsLoseNothing) {
  Counter c;
  for (int i = 0; i < 500; ++i) std::thread([&] { count_here(c, 2); }).join();
  EXPECT_EQ(c.total(), 1000u);
}

TEST(Counters, AReusedIdStartsAtZero) {
  auto first = std::make_unique<Counter>();
  const uint32_t id = first->id();
  count_here(*first, 7);
  std::thread([&] { count_here(*first, 5); }).join();
  EXPECT_EQ(first->total(), 12u);
  first.reset();
  Counter second;
  EXPECT_EQ(second.id(), id);
  EXPECT_EQ(second.total(), 0u);
  count_here(second, 2);
  std::thread([&] { count_here(second); }).join();
  EXPECT_EQ(second.total(), 3u);
}

TEST(Counters, ThousandsOfCounters) {
  constexpr size_t kMany = 5000;  // many chunks
  std::vector<std::unique_ptr<Counter>> counters;
  std::set<uint32_t> ids;
  for (size_t i = 0; i < kMany; ++i) {
    counters.push_back(std::make_unique<Counter>());
    ids.insert(counters.back()->id());
  }
  EXPECT_EQ(ids.size(), kMany);
  const auto each = [&] {
    for (size_t i = 0; i < kMany; ++i) count_here(*counters[i], static_cast<int>(i % 3));
  };
  each();
  std::thread(each).join();
  for (size_t i = 0; i < kMany; ++i) ASSERT_EQ(counters[i]->total(), 2 * (i % 3)) << i;
}

// Returns 0, or the number of the check that failed in the child.
int in_child(const Counter& before, const Counter& other) {
  if (before.total() != 0 || other.total() != 0) return 1;
  count(base::this_thread(), before.id());
  if (before.total() != 1) return 2;
  Counter made;
  if (made.id() == before.id() || made.id() == other.id()) return 3;
  count(base::this_thread(), made.id());
  if (made.total() != 1 || before.total() != 1) return 4;
  return 0;
}

TEST(Counters, AForkedChildRestartsAtZero) {
  Counter before, other;
  count_here(before, 4);
  std::atomic<bool> counted{false}, go{false};
  std::thread busy([&] {
    count_here(other, 6);
    counted = true;
    while (!go.load()) std::this_thread::yield();
  });
  while (!counted.load()) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) _exit(in_child(before, other));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  go = true;
  busy.join();
  EXPECT_EQ(before.total(), 4u);
  EXPECT_EQ(other.total(), 6u);
}

// This test comes last, because a forked child does not get the freed ids and could create no more
// counters.
TEST(Counters, BeyondTheLimitNothingIsCounted) {
  std::vector<std::unique_ptr<Counter>> counters;
  do counters.push_back(std::make_unique<Counter>());
  while (counters.back()->id() != kNoCounter && counters.size() <= kPerChunk * kMaxChunks);
  ASSERT_EQ(counters.back()->id(), kNoCounter);
  count_here(*counters.back(), 3);
  EXPECT_EQ(counters.back()->total(), 0u);
  count_here(*counters.front(), 3);
  EXPECT_EQ(counters.front()->total(), 3u);
}

}  // namespace
}  // namespace yard::base
