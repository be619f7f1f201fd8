// SPDX-License-Identifier: Apache-2.0
// Tests switches of dispatched functions: variables, rules, policies and the master switch.
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

TEST_F(Switches, EverySpellingOfFalseDisablesAndAnEmptyTextSaysNothing) {
  for (const char* off : {"false", "off", "0", "no", "FALSE"}) {
    set("T_AUTO", off);
    EXPECT_EQ(half(8), 4) << off;
  }
  set("T_AUTO", "");
  set("T_OFF", "");
  EXPECT_EQ(half(8), 1);
  EXPECT_FALSE(provider("t_switch/half", "s_off").on);
}

TEST_F(Switches, TheVariableIsReadOnceUntilTheEnvironmentIsReadAgain) {
  EXPECT_EQ(half(8), 1);
  ::setenv("T_AUTO", "off", 1);
  EXPECT_EQ(half(8), 1);
  runtime().rules().reload_environment().or_throw();
  EXPECT_EQ(half(8), 4);
}

TEST_F(Switches, AnInvalidValueIsReportedAndKeepsTheLastValidOne) {
  const auto& log = messages_with("T_AUTO=");
  set("T_AUTO", "perhaps");
  EXPECT_EQ(half(8), 1);
  set("T_AUTO", "off");
  set("T_AUTO", "perhaps");
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(log, (std::vector<std::string>{
                     "T_AUTO=\"perhaps\": expected on, off or auto; backend 's_auto' stays at its "
                     "default",
                     "T_AUTO=\"perhaps\": expected on, off or auto; backend 's_auto' stays off"}));
  set("T_AUTO", "sometimes");
  EXPECT_EQ(half(8), 4);
  set("T_AUTO", "on");
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
  runtime().set_policy(switched("s_auto", true)).or_throw();
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
  EXPECT_EQ(half(8), 1);
  set("YARD_DISABLE", "1");
  EXPECT_EQ(half(8), 4);
  EXPECT_EQ(third(9), 3);
  EXPECT_STREQ(half.last_selected(), "original");
  EXPECT_STREQ(last_selected(), "s_auto");  // the selection of the last dispatched call
  EXPECT_EQ(half.explain(8).why, "the master switch: every call is the original");
  EXPECT_EQ(provider("t_switch/half", "s_auto").reason, "reference_only");
  ::unsetenv("YARD_DISABLE");
  runtime().rules().reload_environment().or_throw();
  EXPECT_EQ(half(8), 1);
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

}  // namespace
}  // namespace yard::testing
