// SPDX-License-Identifier: Apache-2.0
// How rules in rollout are judged, what ends a rollout, and when there is none.
#include <atomic>
#include <thread>

#include "rollout_fixture.h"

namespace yard::testing {
namespace {

using Kind = ConfigEvent::Kind;

class RolloutJudged : public RolloutOf {
 protected:
  // Waits for that event, or its opposite.
  bool ends_by(Kind kind) {
    const Kind other = kind == Kind::kTakenBack ? Kind::kReloaded : Kind::kTakenBack;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!saw(kind) && !saw(other) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    return saw(kind) && !saw(other);
  }
  // A kernel for calls of up to 100 numbers, and rules that want no other.
  Config only_few(double percent, double hold_s) {
    yard_kernel_t few = kernel_of("copy", "few", 3);
    const yard_limit_t limits[] = {{YARD_LIMIT_MAX, 0, "n", 100, 0, 0}};
    few.limits = limits, few.limit_count = 1;
    bare_.add(few).or_throw();
    Config c = rules(percent, hold_s);
    c.dispatch_rules.clear();
    c.kernel_locks["copy"].id = "few";
    return c;
  }
};

TEST_F(RolloutJudged, RulesAreInForceAtOnceWhereThereAreNone) {
  bare_.runtime.load_config("").or_throw();
  bare_.runtime.set_config(rules(1, 3600)).or_throw();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(call());
  EXPECT_FALSE(bare_.runtime.config_history().back().changes.empty());
  EXPECT_FALSE(saw(Kind::kRollout));
}

TEST_F(RolloutJudged, RefusedRulesDoNotAffectTheActiveRollout) {
  Config c = rules(50, 0.5);
  c.rollout->max_slowdown = 1000;
  bare_.runtime.set_config(c).or_throw();
  const Status s = bare_.runtime.set_config(rules(500, 1));
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("rollout.percent"));
  ASSERT_TRUE(ends_by(Kind::kReloaded));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(call());
}

TEST_F(RolloutJudged, RulesWhoseModeIsRemovedAreWithdrawn) {
  ModeProvider mode;
  mode.reads.emplace();
  mode.plan = [](const ModeCall&) { return std::vector<std::string>{"fault.new"}; };
  bare_.runtime.add_mode("mine", mode).or_throw();
  Config c = patient_rules(50, 2);
  c.settings.mode = "mine", c.dispatch_rules.clear();
  c.kernel_denies = {{"old", false, {}}};
  bare_.runtime.set_config(c).or_throw();
  bare_.runtime.remove_mode("mine").or_throw();
  ASSERT_TRUE(ends_by(Kind::kTakenBack));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(call());
}

TEST_F(RolloutJudged, CallsThatFindNoKernelCount) {
  bare_.runtime.set_config(only_few(50, 3600)).or_throw();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!saw(Kind::kTakenBack) && std::chrono::steady_clock::now() < end) try_call(200).ignore();
  ASSERT_TRUE(saw(Kind::kTakenBack));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(try_call(200).ok());
}

TEST_F(RolloutJudged, RulesThatWouldLeaveACallWithoutAKernelAreNotPutInForce) {
  bare_.runtime.set_config(only_few(0.01, 2)).or_throw();
  EXPECT_TRUE(try_call(200).ok());  // seen since the rules were checked, and not in rollout
  ASSERT_TRUE(ends_by(Kind::kTakenBack));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("left without a kernel"));
  EXPECT_TRUE(try_call(200).ok());
}

TEST_F(RolloutJudged, FewCallsSufficeAtTheEnd) {
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  bare_.runtime.set_config(rules(100, 2)).or_throw();
  for (int i = 0; i < 5; ++i) call();
  ASSERT_TRUE(ends_by(Kind::kTakenBack));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("5 of 5 calls"));
}

TEST_F(RolloutJudged, RulesWithoutAnyCallComeIntoForce) {
  bare_.runtime.set_config(rules(100, 0.1)).or_throw();
  ASSERT_TRUE(ends_by(Kind::kReloaded));
}

// Calls in the rollout are the long ones, as they were before.
TEST_F(RolloutJudged, LongCallsAreComparedWithLongOnes) {
  Config same = rules(50, 1);
  same.rollout.reset();
  bare_.runtime.set_config(same).or_throw();
  new_.set(
      {.when = [](const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] > 99; },
       .delay = milliseconds(2)});
  same.rollout.emplace();
  same.rollout->percent = 50, same.rollout->hold_s = 1, same.rollout->max_slowdown = 20;
  same.rollout->labels = {{"tenant", "beta"}};
  bare_.runtime.set_config(same).or_throw();
  const auto end = std::chrono::steady_clock::now() + milliseconds(900);
  const ScopedPolicy alpha(Scope().label("tenant", "alpha"));
  while (std::chrono::steady_clock::now() < end && !saw(Kind::kTakenBack)) {
    for (int i = 0; i < 20; ++i) call(4);
    const ScopedPolicy beta(Scope().label("tenant", "beta"));
    call(100);
  }
  ASSERT_FALSE(saw(Kind::kTakenBack)) << bare_.runtime.problems().at(0).message;
}

TEST_F(RolloutJudged, AListenerThatBlocksDoesNotStopTheRollout) {
  std::atomic<bool> blocked{false}, go_on{false};
  const uint64_t id = bare_.runtime.on_config([&](const ConfigEvent&) {
    blocked = true;
    while (!go_on) std::this_thread::sleep_for(milliseconds(1));
  });
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  bare_.runtime.set_config(rules(50, 3600)).or_throw();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto taken_back = [&] { return !bare_.runtime.problems().empty(); };
  while ((!taken_back() || !blocked) && std::chrono::steady_clock::now() < end) call();
  EXPECT_TRUE(taken_back());
  EXPECT_TRUE(blocked);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(call());
  go_on = true;
  EXPECT_TRUE(ends_by(Kind::kTakenBack));
  bare_.runtime.remove_config_callback(id);
}

}  // namespace
}  // namespace yard::testing
