// SPDX-License-Identifier: Apache-2.0
// Rules in rollout apply to a share of the calls. Rollouts of bad rules are aborted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "base/testing_files.h"
#include "rollout_fixture.h"

namespace yard::testing::rollout {
namespace {

TEST_F(RolloutOf, TheShareOfCallsIsAccurate) {
  ASSERT_TRUE(bare_.runtime.rules().set(patient_rules(25, 3600)).ok());
  int in_rollout = 0;
  for (int i = 0; i < 4000; ++i) in_rollout += call() ? 1 : 0;
  EXPECT_NEAR(in_rollout, 1000, 150);                     // more than five standard deviations
  EXPECT_EQ(bare_.runtime.rules().history().size(), 1u);  // not in force yet
  EXPECT_EQ(bare_.runtime.rules().config(), Config());
}

TEST_F(RolloutOf, AlternatingCallsAllHaveTheirShare) {
  ASSERT_TRUE(bare_.runtime.rules().set(patient_rules(50, 3600)).ok());
  int small = 0, large = 0;
  for (int i = 0; i < 1000; ++i) small += call(4) ? 1 : 0, large += call(64) ? 1 : 0;
  EXPECT_NEAR(small, 500, 100);
  EXPECT_NEAR(large, 500, 100);
}

TEST_F(RolloutOf, ThreadsOfFewCallsHaveTheirShare) {
  ASSERT_TRUE(bare_.runtime.rules().set(patient_rules(5, 3600)).ok());
  for (int i = 0; i < 200; ++i)
    std::thread([&] {
      for (int k = 0; k < 15; ++k) call();
    }).join();
  EXPECT_NEAR(static_cast<double>(new_.calls()), 150, 75);
}

TEST_F(RolloutOf, GoodRulesAreInForceForAllAtTheEnd) {
  ASSERT_TRUE(bare_.runtime.rules().set(patient_rules(10, 0.2)).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kReloaded));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(call());
  EXPECT_EQ(bare_.runtime.rules().history().size(), 2u);
}

TEST_F(RolloutOf, ALogSinkMayAskForTheRulesButNotChangeThem) {
  Runtime& rt = bare_.runtime;
  std::atomic<int> lines{0}, refused{0};
  set_log_sink([&](const LogMessage& m) {
    if (m.logger != "policy") return;
    ++lines;
    rt.rules().history();
    rt.problems();
    refused += rt.rules().set({}).code() == Code::kWouldDeadlock;
  });
  EXPECT_TRUE(rt.rules().set(patient_rules(10, 0.2)).ok());  // the rollout starts
  EXPECT_TRUE(call_until(ConfigEvent::Kind::kReloaded));     // and ends
  // The message may come after the event.
  EXPECT_TRUE(base::eventually([&] { return lines >= 2 && lines == refused; }));
  set_log_sink({});
}

TEST_F(RolloutOf, RulesWhoseKernelsFailAreWithdrawnInTime) {
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  ASSERT_TRUE(bare_.runtime.rules().set(rules(50, 3600)).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kAborted));  // all calls succeeded
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(call());
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("calls in the rollout"));
  EXPECT_EQ(bare_.runtime.rules().history().size(), 1u);
}

TEST_F(RolloutOf, SlowRulesAreWithdrawn) {
  new_.set({.delay = milliseconds(2)});
  ASSERT_TRUE(bare_.runtime.rules().set(rules(50, 3600)).ok());
  ASSERT_TRUE(call_until(ConfigEvent::Kind::kAborted));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("times as long"));
}

TEST_F(RolloutOf, OnlyCallsWithItsLabelsTakePart) {
  Config c = rules(100, 3600);
  c.rollout->labels = {{"tenant", "beta"}};
  ASSERT_TRUE(bare_.runtime.rules().set(c).ok());
  EXPECT_FALSE(call());
  {
    const ScopedPolicy beta(Scope().label("tenant", "beta"));
    EXPECT_TRUE(call());
  }
  {
    const ScopedPolicy other(Scope().label("tenant", "alpha"));
    EXPECT_FALSE(call());
  }
  ASSERT_TRUE(bare_.runtime.rules().set_labels({{"tenant", "beta"}}).ok());
  EXPECT_TRUE(call());
}

// The rules in force read no labels. The rules in rollout still see them, in calls of any form.
TEST_F(RolloutOf, ItsRulesReadLabelsOfCallScopeAndProcess) {
  Config c = patient_rules(100, 3600);
  c.dispatch_rules[0].conditions = {{"tenant", {{"beta", false}}, false, {}}};
  ASSERT_TRUE(bare_.runtime.rules().set(c).ok());
  std::vector<float> y(4), x(4);
  const TensorView to(y.data(), DType::f32, {4}), from(x.data(), DType::f32, {4});
  const auto runs_new = [&](const std::function<Status()>& f) {
    const uint64_t before = new_.calls();
    EXPECT_TRUE(f().ok());
    return new_.calls() > before;
  };
  const auto typed = [&](const Options& o) {
    return runs_new([&] { return copy.on(bare_.runtime).with(o)(to, from, 0); });
  };
  const auto by_name = [&](const Options& o) {
    return runs_new([&] { return bare_.runtime.call("copy", {to, from}, o); });
  };
  Options alpha, beta;
  alpha.labels["tenant"] = "alpha", beta.labels["tenant"] = "beta";
  for (int i = 0; i < 3; ++i) {  // including the call that is planned
    EXPECT_FALSE(call());
    EXPECT_FALSE(typed(alpha));
    EXPECT_TRUE(typed(beta));
    EXPECT_FALSE(by_name(alpha));
    EXPECT_TRUE(by_name(beta));
    const ScopedPolicy in(Scope().label("tenant", "beta"));
    EXPECT_TRUE(call());
    EXPECT_FALSE(typed(alpha));
  }
  ASSERT_TRUE(bare_.runtime.rules().set_labels({{"tenant", "beta"}}).ok());
  EXPECT_TRUE(call());
  EXPECT_FALSE(by_name(alpha));
}

TEST_F(RolloutOf, OtherRulesEndARollout) {
  ASSERT_TRUE(bare_.runtime.rules().set(rules(100, 3600)).ok());
  EXPECT_TRUE(call());
  ASSERT_TRUE(bare_.runtime.rules().set(Config()).ok());
  EXPECT_FALSE(call());
  ASSERT_TRUE(bare_.runtime.rules().set(rules(100, 3600)).ok());
  ASSERT_TRUE(bare_.runtime.rules().load("").ok());
  EXPECT_FALSE(call());
}

TEST_F(RolloutOf, ThePolicyAppliesInTheRolloutToo) {
  ASSERT_TRUE(bare_.runtime.rules().set(rules(100, 3600)).ok());
  EXPECT_TRUE(call());
  Policy p;
  p.deny_kernels = {"fault.new"};
  ASSERT_TRUE(bare_.runtime.set_policy(p).ok());
  EXPECT_FALSE(call());
}

TEST_F(RolloutOf, InvalidNumbersAreRefused) {
  Config c = rules(0, 1);
  const Status s = bare_.runtime.rules().set(c);
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("rollout.percent"));
  const auto reading =
      parse_config("version: \"1.0\"\nrollout: {percent: 200, holds: 3}\n", "r.yaml");
  ASSERT_EQ(reading.problems.size(), 2u);
  EXPECT_THAT(to_string(reading.problems[0]) + to_string(reading.problems[1]),
              ::testing::AllOf(HasSubstr("rollout.percent"), HasSubstr("hold_s")));
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
    c.rollout->max_slowdown = 1000;
    EXPECT_TRUE(bare_.runtime.rules().set(c).ok());
    std::this_thread::sleep_for(milliseconds(30));
  }
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace yard::testing::rollout
