// SPDX-License-Identifier: Apache-2.0
// Several runtimes in one process: settings and events of one do not affect another, and they end
// in any order while threads use the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "base/testing_files.h"
#include "fault.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::eventually;
using ::testing::IsEmpty;

constexpr Op<void(Out, In, int)> copy{"copy"};

intptr_t ran(Runtime& runtime) {
  float to[4] = {}, from[4] = {};
  t_ran = 0;
  const Status s =
      copy.on(runtime)(TensorView(to, DType::f32, {4}), TensorView(from, DType::f32, {4}), 0);
  return s.ok() ? t_ran : -1;
}

// A runtime whose kernels have numbers that identify it.
struct World {
  explicit World(intptr_t number) {
    bare.add(kernel_of("copy", "first", number + 1, 100)).or_throw();
    bare.add(kernel_of("copy", "second", number + 2, 50)).or_throw();
  }
  intptr_t ran() { return testing::ran(bare.runtime); }
  Runtime& runtime() { return bare.runtime; }
  Bare bare;
};

TEST(SeveralRuntimes, PoliciesRulesAndModesAreSeparate) {
  World one(10), two(20);
  EXPECT_EQ(one.ran(), 11);
  EXPECT_EQ(two.ran(), 21);
  Policy p;
  p.deny_kernels = {"first"};
  ASSERT_TRUE(one.runtime().set_policy(p).ok());
  EXPECT_EQ(one.ran(), 12);
  EXPECT_EQ(two.ran(), 21);
  EXPECT_TRUE(two.runtime().policy().empty());
  const base::TempFolder folder;
  base::replace(folder / "r.yaml", "version: '1.0'\nkernel_locks: {copy: second}\n");
  ASSERT_TRUE(two.runtime().rules().load(folder / "r.yaml").ok());
  ASSERT_TRUE(one.runtime().set_policy({}).ok());
  EXPECT_EQ(one.ran(), 11);
  EXPECT_EQ(two.ran(), 22);
  EXPECT_THAT(one.runtime().rules().history(), IsEmpty());
  ASSERT_TRUE(one.runtime().rules().set_static_map({{"copy", "second"}}).ok());
  EXPECT_TRUE(two.runtime().rules().static_map().empty());
  ASSERT_TRUE(two.runtime().recording().to(folder / "calls.txt").ok());
  EXPECT_EQ(one.ran(), one.ran());
  EXPECT_EQ(two.ran(), 22);
  EXPECT_EQ(two.runtime().recording().stats().calls, 1u);
  EXPECT_EQ(one.runtime().recording().stats().path, "");
}

TEST(SeveralRuntimes, PluginsAreSeparate) {
  const Folder folder;
  World one(10), two(20);
  const std::string path = folder.put("answer");
  ASSERT_TRUE(one.runtime().plugins().load(path).ok());
  EXPECT_EQ(ask(one.runtime()), 1);
  EXPECT_EQ(ask(two.runtime()), -1);
  EXPECT_THAT(two.runtime().plugins().list(), IsEmpty());
  // Both runtimes load the same library, and one unloads it.
  ASSERT_TRUE(two.runtime().plugins().load(path).ok());
  ASSERT_TRUE(one.runtime().plugins().unload("answer").value().wait(std::chrono::seconds(20)).ok());
  EXPECT_EQ(ask(one.runtime()), -1);
  EXPECT_EQ(ask(two.runtime()), 1);
}

TEST(SeveralRuntimes, BreakersAndLostDevicesAreSeparate) {
  World one(10), two(20);
  fault::FaultKernel bad{{.op = "copy", .id = "fault.bad", .backend = "test", .priority = 900},
                         {.code = YARD_FAULT}};
  for (World* w : {&one, &two}) ASSERT_TRUE(w->bare.add(bad.descriptor()).ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(one.ran(), 11);
  const auto open = [](World& w) {
    size_t count = 0;
    for (const KernelHealth& k : w.runtime().health().report().kernels) count += k.open.size();
    return count;
  };
  ASSERT_TRUE(eventually([&] { return open(one) == 1; }));
  EXPECT_EQ(open(two), 0u);
  const uint64_t before = bad.calls();
  EXPECT_EQ(two.ran(), 21);
  EXPECT_EQ(bad.calls(), before + 1) << "it is still tried there";
  one.runtime().health().device_lost({}, "gone");
  EXPECT_EQ(one.ran(), -1);
  EXPECT_EQ(two.ran(), 21);
}

TEST(SeveralRuntimes, EndInAnyOrderWhileThreadsUseTheOthers) {
  constexpr size_t kWorlds = 4;
  const World lasting(100);
  std::array<std::unique_ptr<World>, kWorlds> worlds;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) wrong += const_cast<World&>(lasting).ran() != 101;
    });
  // Each of these threads makes and ends runtimes, and alternates calls on them with calls on the
  // one that stays. What a thread remembers of its calls must not outlive their runtime.
  for (size_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      while (!stop) {
        auto& w = worlds[2 * t + random() % 2];
        const auto number = static_cast<intptr_t>(random() % 1000) * 10;
        w = std::make_unique<World>(number);
        for (int i = 0; i < 5; ++i) {
          wrong += w->ran() != number + 1;
          wrong += const_cast<World&>(lasting).ran() != 101;
        }
        auto& other = worlds[2 * t + random() % 2];
        if (other != nullptr) wrong += !other->runtime().set_policy({}).ok();
        if (random() % 3 == 0) other.reset();
      }
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace yard::testing
