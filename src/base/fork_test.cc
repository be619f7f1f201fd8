// SPDX-License-Identifier: Apache-2.0
// What a forked child gets of something whose lock a thread of its parent held.
#include "base/fork.h"

#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/reclaimer.h"
#include "base/testing_fork.h"

namespace yard::base {
namespace {

template <class Mutex>
struct Counter {
  Mutex lock;
  int count = 0;
  void inherit(Counter& parents) { count = parents.count; }
};

// What a child finds of 7 where `held` is locked as it is born.
template <class Mutex, class Held>
int found_by_child(OwnedPerProcess<Counter<Mutex>>& of, Held& held) {
  const std::lock_guard lock(held);
  for (const int n : {7, 0})
    if (true_in_child([&] {
          Counter<Mutex>& mine = of.get();
          const std::lock_guard own(mine.lock);
          return mine.count == n;
        }))
      return n;
  return -1;
}

TEST(OwnedPerProcess, IsInheritedUnlessItsLockIsHeld) {
  OwnedPerProcess<Counter<std::mutex>> of;
  of.get().count = 7;
  std::mutex another;
  EXPECT_EQ(found_by_child(of, another), 7);
  EXPECT_EQ(found_by_child(of, of.get().lock), 0);
  EXPECT_EQ(of.get().count, 7);
}

// Another thread that opens a library: it holds the lock from here until end(), or for `nap` once a fork can be waiting.
class Opening {
 public:
  explicit Opening(std::chrono::milliseconds nap = std::chrono::milliseconds::max()) {
    watch_forks();
    thread_ = std::thread([this, nap] {
      const OpeningLibrary lock;
      opening_ = true;
      if (nap == std::chrono::milliseconds::max())
        while (!end_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      else
        std::this_thread::sleep_for(nap);
      opening_ = false;
    });
    while (!opening_) std::this_thread::yield();
  }
  ~Opening() {
    end_ = true;
    thread_.join();
  }
  bool is_opening() const { return opening_; }

 private:
  std::atomic<bool> opening_{false}, end_{false};
  std::thread thread_;
};

// Whether a library is still being opened when fork() has returned, in the parent.
bool opening_after_fork(const Opening& other) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const bool opening = other.is_opening();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return opening;
}

std::chrono::nanoseconds time_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::steady_clock::now() - start;
}

TEST(OpeningLibrary, ForkWaitsUntilAnotherThreadHasOpenedItsLibrary) {
  if (std::string_view(::gnu_get_libc_version()) < "2.36")
    GTEST_SKIP() << "handlers of fork cannot wait with this C library";
  const Opening other(std::chrono::milliseconds(100));
  EXPECT_FALSE(opening_after_fork(other));
}

TEST(OpeningLibrary, AChildOpensLibrariesAndSoDoesItsParent) {
  const Opening other(std::chrono::milliseconds(20));
  EXPECT_TRUE(true_in_child([] {
    const OpeningLibrary lock;
    return true;
  }));
  const OpeningLibrary lock;
}

TEST(OpeningLibrary, ForkGoesOnAfterASecondAndAtOnceInsideOfPluginCode) {
  if (std::string_view(::gnu_get_libc_version()) < "2.36")
    GTEST_SKIP() << "handlers of fork cannot wait with this C library";
  const Opening other;
  const auto waited = time_of([&] { EXPECT_TRUE(opening_after_fork(other)); });
  const auto inside = time_of([&] {
    const InsidePlugin here;
    EXPECT_TRUE(opening_after_fork(other));
  });
  EXPECT_LT(inside, waited / 2);
  const auto in_call = time_of([&] {
    const Guard here(this_thread());
    EXPECT_TRUE(opening_after_fork(other));
  });
  EXPECT_LT(in_call, waited / 2);
}

}  // namespace
}  // namespace yard::base
