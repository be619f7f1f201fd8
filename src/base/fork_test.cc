// SPDX-License-Identifier: Apache-2.0
// What a forked child gets of something whose lock a thread of its parent held.
#include "base/fork.h"

#include <gtest/gtest.h>

#include <mutex>

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

TEST(OwnedPerProcess, IsInheritedFromThoseWhoOnlyRead) {
  OwnedPerProcess<Counter<EditMutex>> of;
  of.get().count = 7;
  EXPECT_EQ(found_by_child(of, of.get().lock), 7);
  EXPECT_EQ(found_by_child(of, of.get().lock.for_changes), 0);
  EXPECT_EQ(found_by_child(of, of.get().lock), 7);
}

}  // namespace
}  // namespace yard::base
