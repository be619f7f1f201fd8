// SPDX-License-Identifier: Apache-2.0
// Mutexes and conditions around a fork, the functions that a child calls, and the order of ranks.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/testing_fork.h"

namespace yard::base {
namespace {

using std::chrono::milliseconds;

StaticMutex g_lock{Rank::kLog};

// Two numbers that are equal whenever no thread holds the lock.
struct Pair {
  Mutex lock{Rank::kBoard};
  int first = 0, second = 0;
};

TEST(Mutex, AChildFindsWhatItProtectsWhole) {
  Pair pair;
  std::atomic<bool> end{false};
  std::thread writer([&] {
    while (!end) {
      const std::lock_guard lock(pair.lock);
      ++pair.first;
      const std::lock_guard inner(g_lock);
      ++pair.second;
    }
  });
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(true_in_child([&] {
      const std::lock_guard lock(pair.lock);
      const std::lock_guard inner(g_lock);
      return pair.first == pair.second;
    }));
  end = true;
  writer.join();
}

TEST(Mutex, MayBeMadeAndDestroyedBesideForks) {
  Mutex outer(Rank::kLoader);
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!end) {
        const std::lock_guard lock(outer);
        std::vector<std::unique_ptr<Pair>> pairs;
        for (int i = 0; i < 20; ++i) {
          pairs.push_back(std::make_unique<Pair>());
          const std::lock_guard inner(pairs.back()->lock);
          const std::lock_guard innermost(g_lock);
        }
      }
    });
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(true_in_child([&] {
      const std::lock_guard lock(outer);
      Pair made;
      const std::lock_guard inner(made.lock);
      return true;
    }));
  end = true;
  for (std::thread& t : threads) t.join();
}

TEST(Mutex, OfAnOutputIsFreeInTheChildThoughAThreadHeldIt) {
  Mutex mutex(Rank::kOutput);
  std::atomic<bool> held{false}, end{false};
  std::thread writer([&] {
    const std::lock_guard lock(mutex);
    held = true;
    while (!end) std::this_thread::sleep_for(milliseconds(1));
  });
  while (!held) std::this_thread::yield();
  EXPECT_TRUE(true_in_child([&] {
    const std::lock_guard lock(mutex);
    return true;
  }));
  end = true;
  writer.join();
}

TEST(Condition, CanBeUsedAndDestroyedInAChildThoughAThreadWaitedOnIt) {
  Mutex mutex(Rank::kTasks);
  auto condition = std::make_unique<Condition>();
  bool go = false;
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    waiting = true;
    condition->wait(lock, [&] { return go; });
  });
  while (!waiting) std::this_thread::yield();
  EXPECT_TRUE(true_in_child([&] {
    std::thread other([&] {
      const std::lock_guard lock(mutex);
      go = true;
      condition->notify_all();
    });
    std::unique_lock lock(mutex);
    condition->wait(lock, [&] { return go; });
    lock.unlock();
    other.join();
    condition.reset();
    return true;
  }));
  {
    const std::lock_guard lock(mutex);
    go = true;
    condition->notify_all();
  }
  waiter.join();
}

TEST(Condition, WaitsForATime) {
  Mutex mutex(Rank::kTasks);
  Condition condition;
  std::unique_lock lock(mutex);
  EXPECT_EQ(condition.wait_for(lock, milliseconds(1)), std::cv_status::timeout);
  EXPECT_FALSE(condition.wait_until(lock, std::chrono::steady_clock::now() + milliseconds(1),
                                    [] { return false; }));
}

TEST(InChild, IsCalledInOrderOnceTheMutexesAreFree) {
  Pair pair;
  std::vector<int> called;
  const InChild first([&] {
    const std::lock_guard lock(pair.lock);
    called.push_back(1);
  });
  auto gone = std::make_unique<InChild>([&] { called.push_back(2); });
  const InChild last([&] { called.push_back(3); });
  gone.reset();
  const uint64_t before = forks();
  EXPECT_TRUE(true_in_child([&] {
    return called == std::vector<int>{1, 3} && forks() == before + 1;
  }));
  EXPECT_TRUE(called.empty());
  EXPECT_EQ(forks(), before);
}

#ifndef NDEBUG
// The locks are taken inside of EXPECT_DEATH, which forks.
void take_both(Rank first, Rank second) {
  Mutex outer(first), inner(second);
  const std::lock_guard lock(outer);
  const std::lock_guard another(inner);
}

TEST(MutexDeathTest, TheOrderOfRanksIsAsserted) {
  take_both(Rank::kLoader, Rank::kBoard);
  EXPECT_DEATH(take_both(Rank::kBoard, Rank::kLoader), "out of order");
  EXPECT_DEATH(take_both(Rank::kBoard, Rank::kBoard), "out of order");
}

TEST(MutexDeathTest, ForeignCodeUnderALockIsAsserted) {
  const auto enter = [] {
    Mutex mutex(Rank::kLoader);
    const std::lock_guard lock(mutex);
    const ForeignCode here;
  };
  { const ForeignCode without_a_lock; }
  EXPECT_DEATH(enter(), "under a mutex");
}
#endif

}  // namespace
}  // namespace yard::base
