// SPDX-License-Identifier: Apache-2.0
// Tests failures of implementations: fallback where nothing was changed, breakers, probes and
// manual override.
#include <yard/function.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "functions_testing.h"

namespace yard::testing::healthy {
namespace {

using namespace std::chrono_literals;

const Function<int(int)> f{"h_group", "f", [](int x) { return x; }};
const Function<void(std::vector<int>&)> writes{"h_group", "writes",
                                               [](std::vector<int>& v) { v.push_back(0); }};
const Function<void(std::vector<int>&)> again{
    "h_group", "again", [](std::vector<int>& v) { v.assign(1, 0); }, {.repeatable = true}};
const Function<size_t(const std::string&, double, bool)> reads{
    "h_group", "reads", [](const std::string& s, double, bool) { return s.size(); }};

const Function<size_t(std::string)> eats{"h_group", "eats", [](std::string s) { return s.size(); }};

class Failing : public FunctionTest {
 protected:
  void TearDown() override {
    for (const char* name : {"h_bad", "h_next", "h_lost"})
      runtime().health().reset("h_group/f", name).ignore();
    FunctionTest::TearDown();
  }
};

class FunctionHealth : public Failing {
 protected:
  void SetUp() override {
    FunctionTest::SetUp();
    fails_ = false, runs_ = 0;
    BreakerSettings s;
    s.failure_threshold = 3, s.cooldown = 50ms, s.cooldown_growth = 1;
    runtime().health().set_settings(s).or_throw();
  }
  void TearDown() override {
    runtime().health().set_settings({}).or_throw();
    Failing::TearDown();
  }
  void add_bad() {
    add(f, "h_bad",
        [this](int) { return ++runs_, fails_ ? throw std::runtime_error("smoke") : 100; }, {},
        {.priority = 5});
  }
  static std::string breaker() { return provider("h_group/f", "h_bad").breaker; }
  // Returns after pending changes are published, so that calls see them.
  static void now() {
    Health health = runtime().health();
    health.set_settings(health.settings()).or_throw();
  }
  // Waits until the breaker has this state and calls see it.
  static void wait_for_breaker(const std::string& state) {
    for (int i = 0; i < 2000 && breaker() != state; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_EQ(breaker(), state);
    now();
  }
  void fail_until_half_open() {
    fails_ = true;
    for (int i = 0; i < 3; ++i) f(i);
    wait_for_breaker("half_open");
  }
  static KernelHealth of_bad() {
    for (const KernelHealth& k : runtime().health().report().kernels)
      if (k.op == "h_group/f" && k.kernel == "h_bad") return k;
    return {};
  }
  std::atomic<bool> fails_{false};
  std::atomic<int> runs_{0};
};

// ---- Fallback ----

template <class R, class... A>
auto throws(const char* text = "smoke") {
  return [text](A...) -> R { throw std::runtime_error(text); };
}
template <class R, class... A>
auto throws(Code code, ErrorClass c) {
  return [code, c](A...) -> R { throw Error(Status(code, c, "no")); };
}
const auto declines = throws<int, int>(Code::kKernelFailed, ErrorClass::kDeclined);

TEST_F(Failing, ReadOnlyArgumentsAllowFallbackWithoutAPromise) {
  add(f, "h_bad", throws<int, int>());
  EXPECT_EQ(f(5), 5);
  EXPECT_STREQ(f.last_selected(), "original");
  EXPECT_EQ(provider("h_group/f", "h_bad").failures, 1u);
  add(reads, "h_bad2", [](const std::string&, double, bool) -> size_t { throw 7; });
  EXPECT_EQ(reads("four", 1.0, true), 4u);
}

TEST_F(Failing, AFailureAfterPossibleWritesGoesToTheCaller) {
  add(writes, "h_bad", [](std::vector<int>& v) {
    v.push_back(-1);
    throw std::runtime_error("half done");
  });
  std::vector<int> v;
  EXPECT_THROW(writes(v), std::runtime_error);
  EXPECT_EQ(v, std::vector<int>{-1});
}

TEST_F(Failing, ARepeatableFunctionIsRetried) {
  add(again, "h_bad", [](std::vector<int>& v) {
    v.push_back(-1);
    throw std::runtime_error("half done");
  });
  std::vector<int> v{7, 7};
  again(v);
  EXPECT_EQ(v, std::vector<int>{0});
}

TEST_F(Failing, ThePromiseToFailBeforeWritingMakesTheNextOneRun) {
  add(writes, "h_bad", throws<void, std::vector<int>&>(), {}, {.fails_before_writing = true});
  std::vector<int> v;
  writes(v);
  EXPECT_EQ(v, std::vector<int>{0});
}

TEST_F(Failing, EveryImplementationIsTriedOnceWithinTheLimitOfTheRules) {
  int first = 0;
  add(f, "h_bad", [&](int x) { return ++first, throws<int, int>("first")(x); }, {},
      {.priority = 5});
  add(f, "h_next", throws<int, int>("second"));
  EXPECT_EQ(f(5), 5);
  EXPECT_EQ(first, 1);
  add(f, "h_last", [](int) { return 77; }, {}, {.priority = -1});
  EXPECT_EQ(f(5), 77);
  runtime().rules().set(rules("settings: {max_fallback_attempts: 1}")).or_throw();
  try {
    f(5);
    FAIL() << "was tried a third time";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "second");
  }
}

TEST_F(Failing, AMistakeOfTheCallerAndALostDeviceAreTheCallers) {
  add(f, "h_bad", throws<int, int>(Code::kInvalidArgument, ErrorClass::kCaller));
  EXPECT_THROW(f(8), Error);
  EXPECT_EQ(provider("h_group/f", "h_bad").failures, 0u);
  add(f, "h_lost", throws<int, int>(Code::kKernelFailed, ErrorClass::kDeviceLost), {},
      {.priority = 5});
  EXPECT_THROW(f(8), Error);
  EXPECT_EQ(provider("h_group/f", "h_lost").failures, 1u);
}

TEST_F(Failing, OneThatDeclinesIsFollowedUnlessPolicyIsStrict) {
  add(f, "h_bad", declines);
  EXPECT_EQ(f(8), 8);
  {
    ScopedPolicy in(Scope().strict());
    EXPECT_THROW(f(8), Error);
  }
  EXPECT_EQ(f(8), 8);
  Policy p;
  p.strict = true;
  runtime().set_policy(p).or_throw();
  EXPECT_THROW(f(8), Error);
}

TEST_F(Failing, ArgumentsThatWereConsumedCannotBeGivenAgain) {
  add(eats, "h_bad", throws<size_t, std::string>(), {}, {.fails_before_writing = true});
  EXPECT_THROW(eats("abc"), std::runtime_error);
}

// ---- Breakers ----

TEST_F(FunctionHealth, ABackendThatKeepsFailingIsExcluded) {
  add_bad();
  EXPECT_EQ(f(1), 100);
  const uint64_t faults = of_bad().failures.of(ErrorClass::kFault);
  fails_ = true;
  BreakerSettings s = runtime().health().settings();
  s.cooldown = 1h, s.cooldown_cap = 1h;
  runtime().health().set_settings(s).or_throw();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(i), i);
  wait_for_breaker("open");
  const int before = runs_;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(f(i), i);
  EXPECT_EQ(runs_, before);
  const FunctionProvider p = provider("h_group/f", "h_bad");
  EXPECT_FALSE(p.on);
  EXPECT_EQ(p.reason, "unhealthy");
  EXPECT_NE(p.detail.find("probes begin in"), std::string::npos) << p.detail;
  const FunctionExplanation e = f.explain(1);
  EXPECT_EQ(e.selected, "original");
  EXPECT_EQ(e.candidates[0].reason, "unhealthy");
  const KernelHealth k = of_bad();
  EXPECT_EQ(k.failures.of(ErrorClass::kFault), faults + 3);
  EXPECT_EQ(k.successes, 1u);
  EXPECT_EQ(k.last_error, "smoke");
  ASSERT_EQ(k.open.size(), 1u);
  EXPECT_EQ(k.open[0].key, "all calls");
}

TEST_F(FunctionHealth, ABreakerTakesEffectWithTheCallThatOpensIt) {
  add_bad();
  BreakerSettings s = runtime().health().settings();
  s.cooldown = 1h, s.cooldown_cap = 1h;
  runtime().health().set_settings(s).or_throw();
  fails_ = true;
  for (int round = 0; round < 50; ++round) {
    const int before = runs_;
    for (int i = 0; i < 20; ++i) EXPECT_EQ(f(i), i);
    EXPECT_EQ(runs_, before + 3) << "the threshold";
    runtime().health().reset("h_group/f", "h_bad").or_throw();
  }
}

TEST_F(FunctionHealth, ASuccessResetsConsecutiveFaults) {
  add_bad();
  for (int round = 0; round < 6; ++round) {
    fails_ = true;
    f(1), f(2);
    fails_ = false;
    // A success in a scope also counts.
    const ScopedPolicy in(round % 2 == 0 ? Scope() : Scope().deny_vendors({"nobody"}));
    EXPECT_EQ(f(1), 100);
  }
  EXPECT_EQ(breaker(), "closed");
  const FunctionProvider p = provider("h_group/f", "h_bad");
  EXPECT_EQ(p.calls, 18u);
  EXPECT_EQ(p.failures, 12u);
}

TEST_F(FunctionHealth, AfterTheCooldownProbesCloseIt) {
  add_bad();
  fail_until_half_open();
  fails_ = false;
  for (int i = 0; i < 20000 && breaker() != "closed"; ++i) {
    const int y = f(1);
    ASSERT_TRUE(y == 1 || y == 100) << y;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(breaker(), "closed");
  now();
  EXPECT_EQ(f(1), 100);
}

TEST_F(FunctionHealth, AFailedProbeOpensItAgain) {
  add_bad();
  fail_until_half_open();
  BreakerSettings s = runtime().health().settings();
  s.cooldown = 1h, s.cooldown_cap = 1h;  // for the next cooldown
  runtime().health().set_settings(s).or_throw();
  const int before = runs_;
  EXPECT_EQ(f(7), 7);
  EXPECT_EQ(runs_, before + 1);
  // No call is admitted right after a probe has failed.
  EXPECT_EQ(f(7), 7);
  EXPECT_EQ(runs_, before + 1);
}

TEST_F(FunctionHealth, OneCallAtATimeIsTheProbe) {
  std::atomic<int> inside{0}, most{0}, tried{0};
  add(f, "h_bad",
      [&](int) {
        if (fails_) throw std::runtime_error("smoke");
        const int now = ++inside;
        int seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        ++tried;
        std::this_thread::sleep_for(2ms);
        --inside;
        return 100;
      },
      {}, {.priority = 5});
  BreakerSettings s = runtime().health().settings();
  s.success_threshold = 1000, s.half_open_max_calls = 1000;
  runtime().health().set_settings(s).or_throw();
  fail_until_half_open();
  fails_ = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        const int y = f(1);
        EXPECT_TRUE(y == 1 || y == 100) << y;
        std::this_thread::yield();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_GT(tried, 0);
  EXPECT_EQ(most, 1);
}

TEST_F(FunctionHealth, ManualOverrideOpensClosesAndResets) {
  add_bad();
  EXPECT_EQ(f(1), 100);
  Health health = runtime().health();
  ASSERT_TRUE(health.open("h_group/f", "h_bad", "bad firmware").ok());
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(provider("h_group/f", "h_bad").detail, "its breaker was opened manually: bad firmware");
  ASSERT_TRUE(health.close("h_group/f", "h_bad").ok());
  EXPECT_EQ(f(1), 100);
  ASSERT_TRUE(health.open("h_group/f", "h_bad").ok());
  ASSERT_TRUE(health.reset("h_group/f", "h_bad").ok());
  EXPECT_EQ(f(1), 100);
  EXPECT_EQ(health.open("h_group/f", "h_none").message(),
            "backend 'h_none' does not provide function 'h_group/f'");
  EXPECT_EQ(health.open("h_group/g", "h_bad").code(), Code::kNotFound);
}

TEST_F(FunctionHealth, ALostDeviceExcludesItsBackends) {
  add(f, plugin::Backend("h_gpu").device(2).d, [](int) { return 2; });
  EXPECT_EQ(f(1), 2);
  runtime().health().device_lost({2, 0}, "fell off the bus");
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(provider("h_group/f", "h_gpu").detail, "device cuda is lost");
  runtime().health().device_back({2, 0});
  EXPECT_EQ(f(1), 2);
}

TEST_F(FunctionHealth, CallerErrorsAndDeclinedCallsDoNotAffectHealth) {
  add(f, "h_bad", declines, {}, {.priority = 5});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(f(i), i);
  add(f, "h_next", throws<int, int>(Code::kKernelFailed, ErrorClass::kCaller));
  for (int i = 0; i < 10; ++i) EXPECT_THROW(f(i), Error);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(breaker(), "closed");
  EXPECT_EQ(provider("h_group/f", "h_next").breaker, "closed");
}

}  // namespace
}  // namespace yard::testing::healthy
