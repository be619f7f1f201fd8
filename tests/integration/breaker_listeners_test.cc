// SPDX-License-Identifier: Apache-2.0
// Listeners of breakers: they do not delay breakers, and a removed listener is not called.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "breaker_fixture.h"

namespace yard::testing {
namespace {

struct BreakerListeners : HealthOf {};

TEST_F(BreakerListeners, ABlockingListenerDelaysNoBreaker) {
  std::atomic<bool> inside{false}, go_on{false};
  std::atomic<int> told{0};
  Health health = bare_.runtime.health();
  const uint64_t id = health.on_event([&](const BreakerEvent&) {
    inside = true;
    while (!go_on) std::this_thread::sleep_for(milliseconds(1));
    ++told;
  });
  open_by_faults(4);
  ASSERT_TRUE(soon([&] { return inside.load(); }));
  open_by_faults(64);
  go_on = true;
  EXPECT_TRUE(soon([&] { return told >= 2; }));
  health.remove_listener(id);
}

TEST_F(BreakerListeners, AListenerIsNotRunningOnceItIsRemoved) {
  std::atomic<bool> running{false}, removing{false};
  std::atomic<int> calls{0};
  Health health = bare_.runtime.health();
  const uint64_t id = health.on_event([&](const BreakerEvent&) {
    ++calls, running = true;
    while (!removing) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));
    running = false;
  });
  open_by_faults(4);
  open_by_faults(64);
  ASSERT_TRUE(soon([&] { return running.load(); }));
  removing = true;
  health.remove_listener(id);
  EXPECT_FALSE(running);
  const int before = calls;
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(calls, before);
}

TEST_F(BreakerListeners, AListenerMayRemoveItselfAndOthersWaitForItsEnd) {
  std::atomic<int> calls{0};
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> id{0};
  Health health = bare_.runtime.health();
  id = health.on_event([&](const BreakerEvent&) {
    health.remove_listener(id);
    ++calls;
    std::this_thread::sleep_for(milliseconds(100));
    ended = true;
  });
  open_by_faults(4);
  ASSERT_TRUE(soon([&] { return calls > 0; }));
  health.remove_listener(id);
  EXPECT_TRUE(ended);
  open_by_faults(64);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace yard::testing
