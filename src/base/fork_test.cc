// SPDX-License-Identifier: Apache-2.0
// Tests fork() with mutexes, conditions and libraries that are being opened, the functions that a
// child calls, and the order of ranks.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/reclaimer.h"
#include "base/tasks.h"
#include "base/testing_fork.h"

namespace yard::base {
namespace {

using std::chrono::milliseconds;

Mutex g_lock{Rank::kLog};

// Runs `f` again and again on another thread until this ends.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> f)
      : thread_([this, f = std::move(f)] {
          for (begun_ = true; !end_;) f();
        }) {
    while (!begun_) std::this_thread::yield();
  }
  ~Meanwhile() {
    end_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> begun_{false}, end_{false};
  std::thread thread_;
};

// Two numbers that are equal whenever no thread holds the lock.
struct Pair {
  Mutex lock{Rank::kBoard};
  int first = 0, second = 0;

  void change() {
    const std::lock_guard hold(lock);
    ++first;
    const std::lock_guard inner(g_lock);
    ++second;
  }
  bool is_whole() {
    const std::lock_guard hold(lock);
    const std::lock_guard inner(g_lock);
    return first == second;
  }
};

TEST(Mutex, AChildFindsWhatItProtectsWhole) {
  Pair pair;
  const Meanwhile writer([&] { pair.change(); });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(true_in_child([&] { return pair.is_whole(); }));
}

TEST(Mutex, OfAnOutputIsFreeInTheChildThoughAThreadHeldIt) {
  Mutex mutex(Rank::kOutput);
  std::atomic<bool> held{false};
  const Meanwhile writer([&] {
    const std::lock_guard lock(mutex);
    held = true;
    std::this_thread::sleep_for(milliseconds(100));
  });
  while (!held) std::this_thread::yield();
  EXPECT_TRUE(true_in_child([&] {
    const std::lock_guard lock(mutex);
    return true;
  }));
}

TEST(Condition, CanBeUsedAndDestroyedInAChildThoughAThreadWaitedOnIt) {
  Mutex mutex(Rank::kTasks);
  auto condition = std::make_unique<Condition>();
  bool go = false;
  const auto wait = [&] {
    std::unique_lock lock(mutex);
    condition->wait(lock, [&] { return go; });
  };
  const auto wake = [&] {
    const std::lock_guard lock(mutex);
    go = true;
    condition->notify_all();
  };
  std::thread waiter(wait);
  EXPECT_TRUE(true_in_child([&] {
    std::thread other(wake);
    wait();
    other.join();
    condition.reset();
    return true;
  }));
  wake();
  waiter.join();
}

TEST(Condition, WaitsForATime) {
  Mutex mutex(Rank::kTasks);
  Condition condition;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(condition.wait_for(lock, milliseconds(1), [] { return false; }));
}

TEST(InChild, IsCalledInOrderOnceTheMutexesAreFree) {
  Pair pair;
  std::vector<int> called;
  const InChild first([&] { called.push_back(pair.is_whole() ? 1 : 0); });
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

TEST(EndOnOwnThread, AChildThatReturnsFromTheFunctionEndsAtOnce) {
  std::fflush(nullptr);  // the child exits by exit()
  pid_t child = -1;
  end_on_own_thread([&] {
    if ((child = ::fork()) == 0) end_after_a_minute();
  });
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST(OpeningLibrary, AForkWaitsForItAtMostASecondAndNotInsideOfForeignCode) {
  const InChild watched([] {});
  std::atomic<bool> closes{true};
  enum { kNo, kBriefly, kForLong };
  std::atomic<int> opening{kNo};
  const Meanwhile other([&] {
    const OpeningLibrary open;
    opening = closes ? kBriefly : kForLong;
    if (opening == kBriefly) std::this_thread::sleep_for(milliseconds(100));
    while (opening == kForLong && !closes) std::this_thread::sleep_for(milliseconds(1));
    opening = kNo;
  });
  const auto fork_and_time = [&] {
    while (opening != (closes ? kBriefly : kForLong)) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(true_in_child([] {
      const OpeningLibrary open;
      return true;
    }));
    return std::chrono::steady_clock::now() - start;
  };
  EXPECT_LT(fork_and_time(), milliseconds(900));
  closes = false;
  const auto waited = fork_and_time();
  EXPECT_GE(waited, milliseconds(900));
  {
    const ForeignCode here;
    EXPECT_LT(fork_and_time(), waited / 2);
  }
  {
    const Guard in_a_call(this_thread());
    EXPECT_LT(fork_and_time(), waited / 2);
  }
  closes = true;
}

#ifndef NDEBUG
// EXPECT_DEATH forks, so the locks must be taken inside it.
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
    const std::lock_guard lock(g_lock);
    const ForeignCode here;
  };
  { const ForeignCode without_a_lock; }
  EXPECT_DEATH(enter(), "under a mutex");
}
#endif

}  // namespace
}  // namespace yard::base
