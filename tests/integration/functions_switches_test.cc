// SPDX-License-Identifier: Apache-2.0
// Switches of dispatched functions: variables, rules, policies, the master switch; and what failures do.
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {
namespace {

const Function<int(int)> half{"t_switch", "half", [](int x) { return x / 2; }};
const Function<int(int)> third{"t_switch", "third", [](int x) { return x / 3; }};
const Function<int(int)> other{"t_other", "half", [](int x) { return x / 2; }};

class Switches : public FunctionTest {
 protected:
  void SetUp() override {
    FunctionTest::SetUp();
    for (const char* v : kVariables) ::unsetenv(v);
    Changes c;
    c.add_backend(plugin::Backend("s_auto").env("T_AUTO").vendor("acme").d);
    c.add_backend(plugin::Backend("s_off").env("T_OFF").enable(YARD_ENABLE_OFF).d);
    const auto one = [](int) { return 1; };
    const auto two = [](int) { return 2; };
    implement(c, half, "s_auto", one, {}, {.priority = 5});
    implement(c, half, "s_off", two);
    implement(c, third, "s_auto", one, {}, {.priority = 5});
    implement(c, other, "s_auto", one, {}, {.priority = 5});
    runtime().apply(std::move(c)).or_throw();
  }
  void TearDown() override {
    for (const char* v : kVariables) ::unsetenv(v);
    runtime().rules().reload_environment().ignore();
    FunctionTest::TearDown();
  }
  static void set(const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    runtime().rules().reload_environment().ignore();
  }
  static constexpr const char* kVariables[] = {"T_AUTO", "T_OFF", "YARD_DISABLE",
                                               "YARD_BACKEND_S_AUTO"};
};

TEST_F(Switches, ABackendIsOnUnlessItsDefaultIsOff) {
  EXPECT_EQ(half(8), 1);
  EXPECT_EQ(provider("t_switch/half", "s_off").detail,
            "switched off by default; T_OFF=on enables it");
}

TEST_F(Switches, ItsOwnVariableSwitchesABackendOnAndOff) {
  set("T_AUTO", "off");
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(provider("t_switch/half", "s_auto").detail, "switched off by T_AUTO");
  set("T_OFF", "1");
  EXPECT_EQ(half(8), 2);
  set("T_AUTO", "auto");
  EXPECT_EQ(half(8), 1);
}

TEST_F(Switches, TheVariableIsReadOnceUntilTheEnvironmentIsReadAgain) {
  EXPECT_EQ(half(8), 1);
  ::setenv("T_AUTO", "off", 1);
  EXPECT_EQ(half(8), 1);
  runtime().rules().reload_environment().or_throw();
  EXPECT_EQ(half(8), 4);
}

TEST_F(Switches, AnInvalidValueKeepsTheDefaultAndIsReported) {
  std::vector<std::string> log;
  set_log_sink([&](const LogMessage& m) { log.emplace_back(m.text); });
  set("T_AUTO", "perhaps");
  EXPECT_EQ(half(8), 1);
  ASSERT_FALSE(log.empty());
  EXPECT_EQ(log[0],
            "T_AUTO=\"perhaps\": expected on, off or auto; backend 's_auto' stays at its "
            "default");
}

TEST_F(Switches, AnInvalidValueOfItsOwnVariableKeepsTheLastValidOne) {
  set("T_AUTO", "off");
  EXPECT_EQ(half(8), 4);
  std::vector<std::string> log;
  set_log_sink([&](const LogMessage& m) { log.emplace_back(m.text); });
  set("T_AUTO", "perhaps");
  EXPECT_EQ(half(8), 4);
  ASSERT_FALSE(log.empty());
  EXPECT_EQ(log[0], "T_AUTO=\"perhaps\": expected on, off or auto; backend 's_auto' stays off");
  set("T_AUTO", "sometimes");
  EXPECT_EQ(half(8), 4);
  set("T_AUTO", "on");
  EXPECT_EQ(half(8), 1);
  set("T_AUTO", "off");
  set("T_AUTO", "");  // unset
  EXPECT_EQ(half(8), 1);
}

TEST_F(Switches, YardsVariableOfTheBackendIsStrongerThanItsOwn) {
  set("T_AUTO", "on");
  set("YARD_BACKEND_S_AUTO", "off");
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(provider("t_switch/half", "s_auto").detail, "switched off by YARD_BACKEND_S_AUTO");
}

TEST_F(Switches, TheProgramsPolicyIsStrongerThanTheEnvironment) {
  set("YARD_BACKEND_S_AUTO", "off");
  Policy p;
  p.backends["s_auto"] = true;
  runtime().set_policy(p).or_throw();
  EXPECT_EQ(half(8), 1);
}

TEST_F(Switches, DeniedVendorsAreNotCalled) {
  Policy p;
  p.deny_vendors = {"acme"};
  runtime().set_policy(p).or_throw();
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(provider("t_switch/half", "s_auto").reason, "denied_vendor");
}

TEST_F(Switches, TheMasterSwitchMakesEveryCallTheOriginal) {
  set("YARD_DISABLE", "1");
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(third(9), 3);
  EXPECT_EQ(half.explain(8).why, "the master switch: every call is the original");
  EXPECT_EQ(provider("t_switch/half", "s_auto").reason, "reference_only");
  ::unsetenv("YARD_DISABLE");
  runtime().rules().reload_environment().or_throw();
  EXPECT_EQ(half(8), 1);
}

TEST_F(Switches, UnderTheMasterSwitchTheOriginalWasSelected) {
  EXPECT_EQ(half(8), 1);
  EXPECT_STREQ(half.last_selected(), "s_auto");
  set("YARD_DISABLE", "1");
  EXPECT_EQ(half(8), 4);
  EXPECT_STREQ(half.last_selected(), "original");
  EXPECT_STREQ(last_selected(), "s_auto");  // of the last call that was dispatched
}

TEST_F(Switches, RulesSwitchGroupsAndFunctions) {
  runtime().rules().set(rules("functions: {t_switch: {enabled: false}}")).or_throw();
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(third(9), 3);
  EXPECT_EQ(other(8), 1);
  runtime().rules().set(rules("functions: {t_switch/half: {enabled: off}}")).or_throw();
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(third(9), 1);
  runtime()
      .rules()
      .set(rules("functions: {\"t_*\": {enabled: no}, t_switch/half: {enabled: yes}}"))
      .or_throw();
  EXPECT_EQ(half(8), 1);
  EXPECT_EQ(third(9), 3);
  EXPECT_EQ(other(8), 4);
}

TEST_F(Switches, RulesDenyAndOrderBackends) {
  set("T_OFF", "on");
  EXPECT_EQ(half(8), 1);
  runtime().rules().set(rules("functions: {t_switch: {backends: [s_off, s_auto]}}")).or_throw();
  EXPECT_EQ(half(8), 2);
  EXPECT_EQ(third(9), 1);
  runtime().rules().set(rules("functions: {t_switch: {backends: [s_off]}}")).or_throw();
  EXPECT_EQ(third(9), 3);
  EXPECT_EQ(provider("t_switch/third", "s_auto").reason, "not_in_order");
  runtime()
      .rules()
      .set(rules("functions: {t_switch: {deny: [s_off]}, t_switch/half: {deny: [s_auto]}}"))
      .or_throw();
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(third(9), 1);
}

TEST_F(Switches, AForkedChildExcludesBackendsThatCannotSurviveAFork) {
  Changes c;
  c.add_backend(plugin::Backend("s_threads").flags(YARD_BACKEND_FORK_UNSAFE).d);
  implement(c, half, "s_threads", [](int) { return 3; }, {}, {.priority = 9});
  runtime().apply(std::move(c)).or_throw();
  EXPECT_EQ(half(8), 3);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = half(8) == 1 && third(9) == 1 &&
                      half.last_selected() == std::string("s_auto") &&
                      provider("t_switch/half", "s_threads").reason == "forked";
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(half(8), 3);
}

// ---- Failures ----

class Failing : public FunctionTest {};

int throws(int) { throw std::runtime_error("out of luck"); }
int declines(int) {
  Status(Code::kKernelFailed, ErrorClass::kDeclined, "not today").or_throw();
  return 0;
}
int blames_caller(int) {
  Status(Code::kInvalidArgument, "x is wrong").or_throw();
  return 0;
}
int loses_device(int) {
  Status(Code::kKernelFailed, ErrorClass::kDeviceLost, "gone").or_throw();
  return 0;
}

const Function<int(int*)> at{"t_switch", "at", [](int* x) { return *x; }};

TEST_F(Failing, AnExceptionAfterPossibleWritesGoesToTheCaller) {
  int x = 8;
  add(at, "b1", [](int*) -> int { throw std::runtime_error("out of luck"); });
  EXPECT_THROW(at(&x), std::runtime_error);
  EXPECT_EQ(provider("t_switch/at", "b1").failures, 1u);
}

TEST_F(Failing, ThePromiseToFailBeforeWritingMakesTheNextOneRun) {
  int x = 8;
  add(at, "b3", [](int*) -> int { throw std::runtime_error("out of luck"); }, {},
      {.fails_before_writing = true});
  EXPECT_EQ(at(&x), 8);
  add(half, "b1", throws, {}, {.priority = 2, .fails_before_writing = true});
  EXPECT_EQ(half(8), 4);
  EXPECT_STREQ(half.last_selected(), "original");
  add(half, "b2", [](int) { return 77; }, {}, {.priority = 1});
  EXPECT_EQ(half(8), 77);
  EXPECT_STREQ(half.last_selected(), "b2");
  EXPECT_EQ(provider("t_switch/half", "b1").failures, 2u);
}

TEST_F(Failing, OneThatDeclinesHasChangedNothing) {
  add(half, "b1", declines);
  EXPECT_EQ(half(8), 4);
}

TEST_F(Failing, AMistakeOfTheCallerAndALostDeviceAreTheCallers) {
  add(half, "b1", blames_caller, {}, {.fails_before_writing = true});
  EXPECT_THROW(half(8), Error);
  EXPECT_EQ(provider("t_switch/half", "b1").failures, 0u);
  add(third, "b2", loses_device, {}, {.fails_before_writing = true});
  EXPECT_THROW(third(8), Error);
  EXPECT_EQ(provider("t_switch/third", "b2").failures, 1u);
}

TEST_F(Failing, UnderAStrictPolicyThereIsNoFallback) {
  add(half, "b1", declines);
  {
    ScopedPolicy in(Scope().strict());
    EXPECT_THROW(half(8), Error);
  }
  EXPECT_EQ(half(8), 4);
  Policy p;
  p.strict = true;
  runtime().set_policy(p).or_throw();
  EXPECT_THROW(half(8), Error);
}

const Function<size_t(std::string)> eat{"t_switch", "eat", [](std::string s) { return s.size(); }};

TEST_F(Failing, ArgumentsThatWereConsumedCannotBeGivenAgain) {
  add(eat, "b1", [](std::string) -> size_t { throw std::runtime_error("no"); }, {},
      {.fails_before_writing = true});
  EXPECT_THROW(eat("abc"), std::runtime_error);
}

TEST_F(Failing, EveryImplementationThatFailsIsTriedOnce) {
  int first = 0, second = 0;
  add(half, "b1", [&](int x) { return ++first, throws(x); }, {},
      {.priority = 2, .fails_before_writing = true});
  add(half, "b2", [&](int x) { return ++second, throws(x); }, {},
      {.priority = 1, .fails_before_writing = true});
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

}  // namespace
}  // namespace yard::testing
