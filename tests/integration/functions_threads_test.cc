// SPDX-License-Identifier: Apache-2.0
// Tests dispatched functions from many threads, while backends, switches, rules and groups change.
#include <yard/function.h>
#include <yard/plugin.hpp>

#include <atomic>
#include <thread>

#include "functions_testing.h"

namespace yard::testing {
namespace {

#if defined(YARD_UNDER_TSAN) || defined(YARD_UNDER_ASAN)
constexpr int kRounds = 60;
#else
constexpr int kRounds = 400;
#endif
constexpr int kThreads = 4;

const Function<int(int)> f{"c_group", "f", [](int x) { return x; }};

class FunctionThreads : public FunctionTest {
 protected:
  template <class Work, class Change>
  static void race(const Work& work, const Change& change) {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> calls{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        while (!stop.load(std::memory_order_relaxed)) work(), calls.fetch_add(1);
      });
    for (int i = 0; i < kRounds; ++i) change(i);
    while (calls.load() < 1000) std::this_thread::yield();
    stop = true;
    for (std::thread& t : threads) t.join();
  }
};

TEST_F(FunctionThreads, ABackendIsRemovedWhileCallsRun) {
  // An implementation's state must not be freed while it runs.
  struct State {
    std::atomic<int> alive{1};
    ~State() { alive = 0; }
  };
  race(
      [] {
        const int y = f(1);
        ASSERT_TRUE(y == 1 || y == 2) << y;
      },
      [](int) {
        add(f, "racing", [state = std::make_shared<State>()](int x) {
          std::this_thread::yield();
          return x + state->alive;
        });
        EXPECT_TRUE(remove("racing").wait(std::chrono::seconds(60)).ok());
      });
}

// A probe runs while a table is made, and waits for a change that concerns another table.
TEST_F(FunctionThreads, AProbeMayWaitForAThreadThatChangesTheRegistry) {
  static const Function<int(int)> other{"c_group", "other", [](int x) { return x; }};
  static std::atomic<int> asked;
  asked = 0;
  ASSERT_EQ(other(1), 1);
  plugin::Backend b("waiting");
  b.probe([](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) {
    if (++asked == 1)
      std::thread([] { add(other, "of_the_probe", [](int x) { return x + 2; }); }).join();
    return int32_t{YARD_OK};
  });
  add(f, b.d, [](int x) { return x + 1; });
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(other(1), 3);
  EXPECT_GE(asked, 1);
}

TEST_F(FunctionThreads, ScopesHoldWhileBackendsAndPoliciesChange) {
  add(f, "steady", [](int x) { return x + 10; });
  const Scope without(switched("racing", false));
  race(
      [&] {
        const ScopedPolicy in(without);
        const int y = f(1);
        ASSERT_TRUE(y == 1 || y == 11) << y;
      },
      [](int i) {
        add(f, "racing", [](int x) { return x + 1; }, {}, {.priority = 9});
        runtime().set_policy(reference_only(i % 2 == 0)).or_throw();
        EXPECT_TRUE(remove("racing").wait(std::chrono::seconds(60)).ok());
      });
}

TEST_F(FunctionThreads, EverySwitchIsThrownWhileCallsRun) {
  add(
      f, plugin::Backend("c_switched").env("C_SWITCH").vendor("c_vendor").d,
      [](int x) { return x + 1; },
      [](int x) -> Verdict { return x > 0 ? Verdict(Accept()) : Reject("{0} is too small", x); });
  const Config denied = rules("functions: {c_group/f: {deny: [c_switched]}}");
  const auto throw_switch = [&](int which, bool set) {
    const auto variable = [&](const char* name, const char* value) {
      set ? ::setenv(name, value, 1) : ::unsetenv(name);
      runtime().rules().reload_environment().ignore();
    };
    Policy p = set ? switched("c_switched", false) : Policy();
    if (set) p.deny_vendors = {"c_vendor"};
    switch (which) {
      case 0: return variable("C_SWITCH", "off");
      case 1: return variable("YARD_BACKEND_C_SWITCHED", "off");
      case 2: return variable("YARD_DISABLE", "1");
      case 3: return runtime().rules().set(set ? denied : Config()).or_throw();
      case 4: return runtime().set_policy(set ? reference_only(true) : Policy()).or_throw();
      default: return runtime().set_policy(p).or_throw();
    }
  };
  constexpr int kSwitches = 6;
  race(
      [] {
        const int y = f(1);
        ASSERT_TRUE(y == 1 || y == 2) << y;
        ASSERT_EQ(f(0), 0);
      },
      [&](int i) { throw_switch(i % kSwitches, i / kSwitches % 2 == 0); });
  for (int i = 0; i < kSwitches; ++i) throw_switch(i, false);
  for (int i = 0; i < kSwitches; ++i) {
    EXPECT_EQ(f(1), 2) << i;
    throw_switch(i, true);
    EXPECT_EQ(f(1), 1) << i;
    throw_switch(i, false);
  }
  EXPECT_EQ(f(1), 2);
  EXPECT_STREQ(f.last_selected(), "c_switched");
}

TEST_F(FunctionThreads, AGroupIsLoadedOnceByManyCallsAndAProviderRecovers) {
  static const Function<int(int)> g{"c_moody", "g", [](int) { return 0; }};
  static std::atomic<int> asked{0};
  static std::atomic<bool> good{false};
  add_provider("c_moody", [](Changes& c) {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!good) return Status(Code::kUnsupported, "no driver yet");
    c.add_backend(backend("c_moody"));
    implement(c, g, "c_moody", [](int x) { return x + 1; });
    return Status();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([] { EXPECT_EQ(g(1), 0); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(asked, 1);
  race(
      [] {
        const int y = g(1);
        ASSERT_TRUE(y == 0 || y == 2) << y;
      },
      [](int i) {
        if (i > 10) return;
        good = i == 10;
        EXPECT_EQ(runtime().functions().load("c_moody").ok(), i == 10);
      });
  EXPECT_EQ(g(1), 2);
}

}  // namespace
}  // namespace yard::testing
