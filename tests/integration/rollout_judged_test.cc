// SPDX-License-Identifier: Apache-2.0
// Tests how rules in rollout are judged, what ends a rollout, and when there is no rollout.
#include <yard/log.h>
#include <yard/verify.h>

#include <atomic>
#include <limits>
#include <thread>

#include "base/testing_files.h"
#include "rollout_fixture.h"

namespace yard::testing::rollout {
namespace {

using Kind = ConfigEvent::Kind;

int32_t real_copy(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i];
  return YARD_OK;
}

class RolloutJudged : public RolloutOf {
 protected:
  // Waits for this event or its opposite.
  bool ends_by(Kind kind) {
    const Kind other = kind == Kind::kAborted ? Kind::kReloaded : Kind::kAborted;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!saw(kind) && !saw(other) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    return saw(kind) && !saw(other);
  }
  // Registers a kernel for calls of up to 100 numbers, and returns rules that lock the op to it.
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
  bare_.runtime.rules().load("").or_throw();
  bare_.runtime.rules().set(rules(1, 3600)).or_throw();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(call());
  EXPECT_FALSE(bare_.runtime.rules().history().back().changes.empty());
  EXPECT_FALSE(saw(Kind::kRollout));
}

TEST_F(RolloutJudged, RefusedRulesDoNotAffectTheActiveRollout) {
  Config c = rules(50, 0.5);
  c.rollout->max_slowdown = 1000;
  bare_.runtime.rules().set(c).or_throw();
  const Status s = bare_.runtime.rules().set(rules(500, 1));
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("rollout.percent"));
  ASSERT_TRUE(ends_by(Kind::kReloaded));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(call());
}

TEST_F(RolloutJudged, RulesWhoseModeIsRemovedAreWithdrawn) {
  ModeProvider mode;
  mode.reads.emplace();
  mode.plan = [](const ModeCall&) { return std::vector<std::string>{"fault.new"}; };
  bare_.runtime.rules().add_mode("mine", mode).or_throw();
  Config c = patient_rules(50, 2);
  c.settings.mode = "mine", c.dispatch_rules.clear();
  c.kernel_denies = {{"old", false, {}}};
  bare_.runtime.rules().set(c).or_throw();
  bare_.runtime.rules().remove_mode("mine").or_throw();
  ASSERT_TRUE(ends_by(Kind::kAborted));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(call());
}

TEST_F(RolloutJudged, CallsThatFindNoKernelCount) {
  bare_.runtime.rules().set(only_few(50, 3600)).or_throw();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!saw(Kind::kAborted) && std::chrono::steady_clock::now() < end) try_call(200).ignore();
  ASSERT_TRUE(saw(Kind::kAborted));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(try_call(200).ok());
}

TEST_F(RolloutJudged, RulesThatWouldLeaveACallWithoutAKernelAreNotPutInForce) {
  bare_.runtime.rules().set(only_few(0.01, 2)).or_throw();
  // A call that was not recorded when the rules were checked, and that is not in the rollout.
  EXPECT_TRUE(try_call(200).ok());
  ASSERT_TRUE(ends_by(Kind::kAborted));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("left without a kernel"));
  EXPECT_TRUE(try_call(200).ok());
}

TEST_F(RolloutJudged, FewCallsSufficeAtTheEnd) {
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  bare_.runtime.rules().set(rules(100, 2)).or_throw();
  for (int i = 0; i < 5; ++i) call();
  ASSERT_TRUE(ends_by(Kind::kAborted));
  EXPECT_THAT(bare_.runtime.problems().at(0).message, HasSubstr("5 of 5 calls"));
}

TEST_F(RolloutJudged, RulesWithoutAnyCallComeIntoForce) {
  bare_.runtime.rules().set(rules(100, 0.1)).or_throw();
  ASSERT_TRUE(ends_by(Kind::kReloaded));
}

// The new kernel returns NaN and reports success. The canary finds this however rarely it samples.
TEST_F(RolloutJudged, RulesWhoseKernelsReturnWrongResultsAreRolledBack) {
  yard_kernel_t right = plugin::Kernel::of<real_copy>("copy", "reference.cpp")
                            .backend("test")
                            .kind(YARD_KIND_REFERENCE)
                            .d;
  bare_.add(right).or_throw();
  const std::pair<CanaryRule::Check, int64_t> canaries[] = {
      {CanaryRule::Check::kFinite, 1},
      {CanaryRule::Check::kValues, 1},
      {CanaryRule::Check::kValues, 10},
      {CanaryRule::Check::kFinite, 1'000'000}};
  new_.set({.wrong_numbers = true,
            .offset = std::numeric_limits<double>::quiet_NaN(),
            .delegate = &right});
  for (const auto& [check, one_in] : canaries) {
    const CanaryRule canary{.op = "*", .one_in = one_in, .check = check};
    for (const bool in_new_file : {true, false}) {
      Config before;
      if (!in_new_file) before.canary = {canary};
      bare_.runtime.rules().set(before).or_throw();
      {
        const std::lock_guard l(lock_);
        events_.clear();
      }
      Config c = patient_rules(50, 3);
      if (in_new_file) c.canary = {canary};
      bare_.runtime.rules().set(c).or_throw();
      ASSERT_TRUE(call_until(Kind::kAborted)) << one_in;
      EXPECT_THAT(bare_.runtime.problems().at(0).message,
                  HasSubstr("checked results in the rollout were wrong"));
      for (int i = 0; i < 20; ++i) EXPECT_FALSE(call());
    }
  }
}

// A breaker keeps most calls from the bad kernel, so few calls fail. The rules still count as bad.
TEST_F(RolloutJudged, RulesWhoseCallsOpenABreakerAreRolledBack) {
  bare_
      .add(plugin::Kernel::of<real_copy>("copy", "reference.cpp")
               .backend("test")
               .kind(YARD_KIND_REFERENCE)
               .d)
      .or_throw();
  bare_.runtime.health().set_settings(BreakerSettings()).or_throw();
  for (const bool wrong : {false, true}) {
    new_.set({.code = wrong ? YARD_OK : YARD_FAULT, .wrong_numbers = wrong});
    const auto forget = [&] {
      const std::lock_guard l(lock_);
      events_.clear();
    };
    forget();
    bare_.runtime.rules().set({}).or_throw();
    ASSERT_TRUE(ends_by(Kind::kReloaded));
    forget();
    Config c = patient_rules(50, 2);
    c.rollout->max_error_rate = 0.5;
    if (wrong) c.canary = {{.op = "*", .kernel = "fault.new", .one_in = 2}};
    bare_.runtime.rules().set(c).or_throw();
    ASSERT_TRUE(call_until(Kind::kAborted)) << wrong;
    EXPECT_FALSE(saw(Kind::kReloaded));
    bare_.runtime.health().reset("copy", "fault.new").or_throw();
  }
}

TEST_F(RolloutJudged, BothSidesAreChecked) {
  bare_
      .add(plugin::Kernel::of<real_copy>("copy", "reference.cpp")
               .backend("test")
               .kind(YARD_KIND_REFERENCE)
               .d)
      .or_throw();
  Config c = patient_rules(50, 3600);
  c.rollout->max_error_rate = 1;
  c.canary = {{.op = "*", .check = CanaryRule::Check::kFinite}};
  bare_.runtime.rules().set(c).or_throw();
  for (int i = 0; i < 200; ++i) call();
  uint64_t of_old = 0, of_new = 0;
  for (const CanaryReport::Kernel& k : bare_.runtime.health().canaries().kernels)
    (k.kernel == "old" ? of_old : of_new) += k.checked;
  EXPECT_GT(of_old, 20u);
  EXPECT_GT(of_new, 20u);
}

// The reference kernel is slow. The time of a check must not count as a slowdown by the rules.
TEST_F(RolloutJudged, TheTimeOfChecksIsNotThatOfCalls) {
  static constexpr auto kReference = +[](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    std::this_thread::sleep_for(milliseconds(1));
    return YARD_OK;
  };
  yard_kernel_t slow = kernel_of("copy", "reference.cpp", 9);
  slow.kind = YARD_KIND_REFERENCE, slow.run = kReference;
  bare_.add(slow).or_throw();
  new_.set({.delay = std::chrono::microseconds(200)});
  Config before;
  DispatchRule r;
  r.operation = "copy", r.kernel = "fault.new";
  before.dispatch_rules.push_back(r);
  before.canary = {{.op = "*", .kernel = "fault.new", .one_in = 1'000'000}};
  bare_.runtime.rules().set(before).or_throw();
  Config c = rules(50, 0.4);
  c.rollout->max_slowdown = 3;
  c.rollout->max_error_rate = 1;
  c.canary = {{.op = "*", .kernel = "fault.new", .one_in = 1}};
  bare_.runtime.rules().set(c).or_throw();
  const size_t versions = bare_.runtime.rules().history().size();
  EXPECT_TRUE(base::eventually([&] {
    call();
    return saw(Kind::kAborted) || bare_.runtime.rules().history().size() > versions;
  }));
  EXPECT_FALSE(saw(Kind::kAborted)) << bare_.runtime.problems().at(0).message;
}

TEST_F(RolloutJudged, StartPromotionAndRollbackAreLogged) {
  std::mutex lock;
  std::string log;
  set_log_sink([&](const LogMessage& m) {
    const std::lock_guard l(lock);
    log += std::string(m.text) + "\n";
  });
  const auto logged = [&](const char* text) {
    const std::lock_guard l(lock);
    return log.find(text) != std::string::npos;
  };
  bare_.runtime.rules().set(patient_rules(20, 0.1)).or_throw();
  EXPECT_TRUE(logged("Rules::set: rollout started: 20 % of calls for 0.1 s"));
  ASSERT_TRUE(call_until(Kind::kReloaded));
  // The message may come after the event.
  EXPECT_TRUE(base::eventually([&] { return logged("Rules::set: rollout promoted: "); }));
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  Config bad = rules(100, 3);
  bare_.runtime.rules().set({}).or_throw();
  bare_.runtime.rules().set(bad).or_throw();
  ASSERT_TRUE(call_until(Kind::kAborted));
  EXPECT_TRUE(base::eventually([&] { return logged("Rules::set: rollout aborted: "); }));
  set_log_sink({});
  EXPECT_THAT(log, ::testing::ContainsRegex("Rules::set: rollout aborted: [0-9]+ of [0-9]+ calls"));
}

// The calls in the rollout are the long ones, as they were before it.
TEST_F(RolloutJudged, LongCallsAreComparedWithLongOnes) {
  Config same = rules(50, 1);
  same.rollout.reset();
  bare_.runtime.rules().set(same).or_throw();
  new_.set(
      {.when = [](const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] > 99; },
       .delay = milliseconds(2)});
  same.rollout.emplace();
  same.rollout->percent = 50, same.rollout->hold_s = 1, same.rollout->max_slowdown = 20;
  same.rollout->labels = {{"tenant", "beta"}};
  bare_.runtime.rules().set(same).or_throw();
  const auto end = std::chrono::steady_clock::now() + milliseconds(900);
  const ScopedPolicy alpha(Scope().label("tenant", "alpha"));
  while (std::chrono::steady_clock::now() < end && !saw(Kind::kAborted)) {
    for (int i = 0; i < 20; ++i) call(4);
    const ScopedPolicy beta(Scope().label("tenant", "beta"));
    call(100);
  }
  ASSERT_FALSE(saw(Kind::kAborted)) << bare_.runtime.problems().at(0).message;
}

TEST_F(RolloutJudged, AListenerThatBlocksDoesNotStopTheRollout) {
  std::atomic<bool> blocked{false}, go_on{false};
  const uint64_t id = bare_.runtime.rules().on_change([&](const ConfigEvent&) {
    blocked = true;
    while (!go_on) std::this_thread::sleep_for(milliseconds(1));
  });
  new_.set({.code = YARD_FAULT, .message = "new and broken"});
  bare_.runtime.rules().set(rules(50, 3600)).or_throw();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto aborted = [&] { return !bare_.runtime.problems().empty(); };
  while ((!aborted() || !blocked) && std::chrono::steady_clock::now() < end) call();
  EXPECT_TRUE(aborted());
  EXPECT_TRUE(blocked);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(call());
  go_on = true;
  EXPECT_TRUE(ends_by(Kind::kAborted));
  bare_.runtime.rules().remove_callback(id);
}

}  // namespace
}  // namespace yard::testing::rollout
