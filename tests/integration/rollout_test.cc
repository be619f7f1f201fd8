// SPDX-License-Identifier: Apache-2.0
// Rules on trial: a share of the calls goes by them, and bad ones are taken back by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "fault.h"
#include "testing.h"

namespace yard::testing {
namespace {

using fault::FaultKernel;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr Op<void(Out, In, int)> copy{"copy"};

class RolloutOf : public ::testing::Test {
 protected:
  RolloutOf() {
    Changes c;
    c.add_backend(backend_.descriptor());
    c.add_kernel(new_.descriptor()).add_kernel(kernel_of("copy", "old", 1, 200));
    bare_.runtime.apply(std::move(c)).or_throw();
    bare_.runtime.on_config([this](const ConfigEvent& e) {
      const std::lock_guard l(lock_);
      events_.push_back(e);
    });
    BreakerSettings off;
    off.enabled = false;  // so that nothing else keeps the new kernel from failing
    bare_.runtime.health().set_settings(off).or_throw();
  }
  ~RolloutOf() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  // Rules that send every call to the new kernel.
  Config rules(double percent, double hold_s) {
    Config c;
    DispatchRule r;
    r.operation = "copy", r.kernel = "fault.new";
    c.dispatch_rules.push_back(r);
    c.canary.emplace();
    c.canary->percent = percent, c.canary->hold_s = hold_s;
    return c;
  }
  bool call() {
    std::vector<float> to(4), from(4);
    const uint64_t before = new_.calls();
    EXPECT_TRUE(copy.on(bare_.runtime)(TensorView(to.data(), DType::f32, {4}),
                                       TensorView(from.data(), DType::f32, {4}), 0)
                    .ok());
    return new_.calls() > before;
  }
  bool saw(ConfigEvent::Kind kind) {
    const std::lock_guard l(lock_);
    for (const ConfigEvent& e : events_)
      if (e.kind == kind) return true;
    return false;
  }
  // Calls until that event comes.
  bool call_until(ConfigEvent::Kind kind, milliseconds patience = milliseconds(20000)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!saw(kind)) {
      if (std::chrono::steady_clock::now() > end) return false;
      call();
    }
    return true;
  }

  fault::FaultBackend backend_;
  FaultKernel new_{{.op = "copy", .id = "fault.new", .priority = 100}, {.rate = 0}};
  std::mutex lock_;
  std::vector<ConfigEvent> events_;
  Bare bare_;  // last: its threads tell of events until it ends
};

TEST_F(RolloutOf, TheShareOfCallsIsExact) {
  ASSERT_TRUE(bare_.runtime.set_config(rules(25, 3600)).ok());
  int on_trial = 0;
  for (int i = 0; i < 1000; ++i) on_trial += call() ? 1 : 0;
  EXPECT_EQ(on_trial, 250);
  EXPECT_TRUE(bare_.runtime.config_history().empty());  // not in force yet
  EXPECT_EQ(bare_.runtime.config(), Config());
}

TEST_F(RolloutOf, GoodRulesAreInForceForAllAfterTheirTime) {
  Config c = rules(10, 0.2);
  c.canary->max_slowdown = 1000;  // it allocates more than the old one does anything
  ASSERT_TRUE(bare_.runtime.set_config(c).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kReloaded));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(call());
  EXPECT_EQ(bare_.runtime.config_history().size(), 1u);
}

TEST_F(RolloutOf, RulesWhoseKernelsFailAreTakenBackWithinTheirTime) {
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  ASSERT_TRUE(bare_.runtime.set_config(rules(50, 3600)).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kTakenBack));  // and every call went well
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(call());
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("calls on trial"));
  EXPECT_TRUE(bare_.runtime.config_history().empty());
}

TEST_F(RolloutOf, SlowRulesAreTakenBack) {
  new_.set({.delay = milliseconds(2)});
  ASSERT_TRUE(bare_.runtime.set_config(rules(50, 3600)).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kTakenBack));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("times as long"));
}

TEST_F(RolloutOf, OnlyCallsWithItsLabelsGoOnTrial) {
  Config c = rules(100, 3600);
  c.canary->labels = {{"tenant", "beta"}};
  ASSERT_TRUE(bare_.runtime.set_config(c).ok());
  EXPECT_FALSE(call());
  {
    const ScopedPolicy beta(Scope().label("tenant", "beta"));
    EXPECT_TRUE(call());
  }
  {
    const ScopedPolicy other(Scope().label("tenant", "alpha"));
    EXPECT_FALSE(call());
  }
  ASSERT_TRUE(bare_.runtime.set_labels({{"tenant", "beta"}}).ok());
  EXPECT_TRUE(call());
}

TEST_F(RolloutOf, OtherRulesEndATrial) {
  ASSERT_TRUE(bare_.runtime.set_config(rules(100, 3600)).ok());
  EXPECT_TRUE(call());
  ASSERT_TRUE(bare_.runtime.set_config(Config()).ok());
  EXPECT_FALSE(call());
  ASSERT_TRUE(bare_.runtime.set_config(rules(100, 3600)).ok());
  ASSERT_TRUE(bare_.runtime.load_config("").ok());
  EXPECT_FALSE(call());
}

TEST_F(RolloutOf, WhatThePolicySaysHoldsOnTrialToo) {
  ASSERT_TRUE(bare_.runtime.set_config(rules(100, 3600)).ok());
  EXPECT_TRUE(call());
  Policy p;
  p.deny_kernels = {"fault.new"};
  ASSERT_TRUE(bare_.runtime.set_policy(p).ok());
  EXPECT_FALSE(call());
}

TEST_F(RolloutOf, NumbersThatMeanNothingAreRefused) {
  Config c = rules(0, 1);
  const Status s = bare_.runtime.set_config(c);
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("canary.percent"));
  const auto reading =
      parse_config("version: \"1.0\"\ncanary: {percent: 200, holds: 3}\n", "r.yaml");
  ASSERT_EQ(reading.problems.size(), 2u);
  EXPECT_THAT(to_string(reading.problems[0]) + to_string(reading.problems[1]),
              ::testing::AllOf(HasSubstr("canary.percent"), HasSubstr("hold_s")));
}

TEST_F(RolloutOf, ThreadsCallWhileRulesComeAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      std::vector<float> to(4), from(4);
      while (!stop.load())
        wrong += copy.on(bare_.runtime)(TensorView(to.data(), DType::f32, {4}),
                                        TensorView(from.data(), DType::f32, {4}), 0)
                         .ok()
                     ? 0
                     : 1;
    });
  for (int round = 0; round < 20; ++round) {
    new_.set({.rate = round % 2 == 0 ? 0.0 : 1.0, .code = YARD_FAULT});
    Config c = rules(30, 0.02);
    c.canary->max_slowdown = 1000;
    EXPECT_TRUE(bare_.runtime.set_config(c).ok());
    std::this_thread::sleep_for(milliseconds(30));
  }
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace yard::testing
