// SPDX-License-Identifier: Apache-2.0
// The policy of scopes applies to dispatched functions as it does to kernels.
#include <gmock/gmock.h>

#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

const Function<int(int)> scoped_half{"t_scoped", "half", [](int x) { return x / 2; }};
const Function<int(int)> scoped_again{"t_scoped", "again", [](int x) { return -x; }};

// "c_acme" of vendor acme comes first, then "c_plain", which has no vendor. "c_off" is off by
// default.
class ScopedFunctions : public FunctionTest {
 protected:
  void SetUp() override {
    FunctionTest::SetUp();
    Changes c;
    c.add_backend(plugin::Backend("c_acme").vendor("acme").d);
    c.add_backend(plugin::Backend("c_plain").d);
    c.add_backend(plugin::Backend("c_off").enable(YARD_ENABLE_OFF).d);
    implement(c, scoped_half, "c_acme", [](int) { return 1; }, {}, {.priority = 5});
    implement(c, scoped_half, "c_plain", [](int) { return 2; });
    implement(c, scoped_half, "c_off", [](int) { return 3; }, {}, {.priority = 9});
    runtime().apply(std::move(c)).or_throw();
  }
};

TEST_F(ScopedFunctions, ABackendIsSwitchedForTheBlock) {
  for (int i = 0; i < 3; ++i) {
    {
      const ScopedPolicy in(switched("c_acme", false));
      EXPECT_EQ(scoped_half(8), 2);
      EXPECT_EQ(scoped_half(8), 2);
      EXPECT_STREQ(scoped_half.last_selected(), "c_plain");
      const ScopedPolicy inner(switched("c_plain", false));
      EXPECT_EQ(scoped_half(8), 4);
      EXPECT_STREQ(scoped_half.last_selected(), "original");
    }
    EXPECT_EQ(scoped_half(8), 1);
  }
  const ScopedPolicy in(switched("c_off", true));
  EXPECT_EQ(scoped_half(8), 3);
}

TEST_F(ScopedFunctions, VendorsAreDeniedAndAllowed) {
  const std::pair<Scope, int> expected[] = {{Scope().deny_vendors({"acme"}), 2},
                                            {Scope().allow_vendors({"other"}), 2},
                                            {Scope().allow_vendors({"acme"}), 1}};
  for (const auto& [scope, result] : expected) {
    const ScopedPolicy in(scope);
    EXPECT_EQ(scoped_half(8), result);
  }
}

TEST_F(ScopedFunctions, AnAllowListReplacesThatOfTheProcess) {
  Policy p;
  p.allow_vendors = {"other"};
  runtime().set_policy(p).or_throw();
  EXPECT_EQ(scoped_half(8), 2);
  const ScopedPolicy in(Scope().allow_vendors({"acme"}));
  EXPECT_EQ(scoped_half(8), 1);
  // A change of the process policy does not change the table of the process here, but it changes
  // the table of the scope.
  p.backends["c_acme"] = false;
  runtime().set_policy(p).or_throw();
  EXPECT_EQ(scoped_half(8), 2);
}

TEST_F(ScopedFunctions, ReferenceOnlyOfAScopeIsStrongerThanThatOfTheProcess) {
  {
    const ScopedPolicy in(reference_only(true));
    EXPECT_EQ(scoped_half(8), 4);
    EXPECT_EQ(scoped_half(8), 4);
    EXPECT_STREQ(scoped_half.last_selected(), "original");
    EXPECT_EQ(scoped_half.explain(8).why, "the master switch: every call is the original");
    const ScopedPolicy inner(reference_only(false));
    EXPECT_EQ(scoped_half(8), 1);
  }
  runtime().set_policy(reference_only(true)).or_throw();
  EXPECT_EQ(scoped_half(8), 4);
  {
    const ScopedPolicy in(switched("c_acme", false));
    EXPECT_EQ(scoped_half(8), 4);
    const ScopedPolicy inner(reference_only(false));
    EXPECT_EQ(scoped_half(8), 2);
  }
  EXPECT_EQ(scoped_half(8), 4);
}

TEST_F(ScopedFunctions, ChangesOfTheProcessAreSeenInsideTheScope) {
  const ScopedPolicy in(switched("c_acme", false));
  EXPECT_EQ(scoped_half(8), 2);
  runtime().set_policy(switched("c_plain", false)).or_throw();
  EXPECT_EQ(scoped_half(8), 4);
  runtime().set_policy({}).or_throw();
  EXPECT_EQ(scoped_half(8), 2);
  remove("c_plain");
  EXPECT_EQ(scoped_half(8), 4);
}

TEST_F(ScopedFunctions, ExplainGivesTheReason) {
  const ScopedPolicy in(switched("c_acme", false));
  const FunctionExplanation e = scoped_half.explain(8);
  EXPECT_EQ(e.selected, "c_plain");
  EXPECT_THAT(e.to_text(), HasSubstr("disabled: switched off by a scope of the thread"));
  const ScopedPolicy inner(Scope().deny_vendors({"acme"}));
  EXPECT_THAT(scoped_half.explain(8).to_text(),
              HasSubstr("denied_vendor: vendor 'acme' is denied"));
}

TEST_F(ScopedFunctions, RunsAreCountedTogether) {
  scoped_half(8);
  {
    const ScopedPolicy in(Scope().deny_vendors({"other"}));
    scoped_half(8);
    scoped_half(8);
  }
  EXPECT_EQ(provider("t_scoped/half", "c_acme").calls, 3u);
}

// A scope makes its own table only if it sets a field that concerns functions.
TEST_F(ScopedFunctions, OtherFieldsOfAScopeDecideNothing) {
  EXPECT_EQ(scoped_half(8), 1);
  const ScopedPolicy in(Scope().label("tenant", "b"));
  EXPECT_EQ(scoped_half(8), 1);
  const ScopedPolicy inner(switched("c_acme", false));
  EXPECT_EQ(scoped_half(8), 2);
}

TEST_F(ScopedFunctions, ManyScopesAreServedAndKeepNothingFromBeingFreed) {
  for (int i = 0; i < 600; ++i) {
    Policy p = switched("c_acme", i % 2 == 0);
    p.backends["none_" + std::to_string(i)] = false;
    const ScopedPolicy in(std::move(p));
    ASSERT_EQ(scoped_half(8), i % 2 == 0 ? 1 : 2);
  }
  EXPECT_TRUE(remove("c_plain").wait(std::chrono::seconds(30)).ok());
}

TEST_F(ScopedFunctions, PolicyLeavesOutActiveBackendsToo) {
  const Function<int()> active{"t_scoped", "active"};
  const auto ask = [&] { return active.call_or([] { return 0; }); };
  Changes c;
  implement(c, active, "c_plain", [] { return 2; });
  implement(c, active, "c_acme", [] { return 1; });
  runtime().apply(std::move(c)).or_throw();
  yard::Functions functions = runtime().functions();
  functions.activate("c_plain").or_throw();
  functions.activate("c_acme").or_throw();
  EXPECT_EQ(ask(), 1);
  {
    const ScopedPolicy in(Scope().deny_vendors({"acme"}));
    EXPECT_EQ(ask(), 2);
    functions.deactivate("c_plain").or_throw();
    EXPECT_EQ(ask(), 0) << "changes are seen inside the scope";
    functions.activate("c_plain").or_throw();
    const ScopedPolicy inner(reference_only(true));
    EXPECT_EQ(ask(), 0);
  }
  runtime().set_policy(switched("c_acme", false)).or_throw();
  EXPECT_EQ(ask(), 2);
  EXPECT_EQ(provider("t_scoped/active", "c_acme").detail, "switched off by the program");
  {
    const ScopedPolicy in(Scope().backend("c_acme"));
    EXPECT_EQ(ask(), 2) << "a scope cannot lift what policy denies by naming the backend";
    const ScopedPolicy inner(switched("c_acme", true));
    EXPECT_EQ(ask(), 1);
  }
  runtime().set_policy(reference_only(true)).or_throw();
  EXPECT_EQ(ask(), 0);
  EXPECT_TRUE(functions.activate("c_plain").ok()) << "what is active counts again later";
  runtime().set_policy({}).or_throw();
  EXPECT_EQ(ask(), 2);
}

TEST_F(ScopedFunctions, ACallInAnInvalidScopeFails) {
  const Function<int(int)> active{
      "t_scoped", "idle", [](int x) { return x; }, {.selection = Selection::kActive}};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(active(i), i);  // no backend serves this function
  Policy p = switched("c_acme", false);
  {
    const ScopedPolicy in(p);
    EXPECT_EQ(scoped_half(8), 2);
  }
  p.per_op["softmax"] = {"vendr"};
  const ScopedPolicy in(p);
  EXPECT_THROW(scoped_half(8), Error);
  EXPECT_THROW(active(8), Error);
  EXPECT_THROW(active.call_or([] { return 0; }, 8), Error);
  const FunctionExplanation e = scoped_half.explain(8);
  EXPECT_EQ(e.selected, "");
  EXPECT_THAT(e.why, HasSubstr("vendr"));
}

TEST_F(ScopedFunctions, AFailureFallsBackInsideTheScope) {
  add(scoped_again, "c_fails", [](int) -> int { throw std::runtime_error("no"); }, {},
      {.priority = 7});
  add(scoped_again, "c_works", [](int x) { return 10 * x; });
  const ScopedPolicy in(switched("c_acme", false));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(scoped_again(2), 20);
  const ScopedPolicy inner(switched("c_works", false));
  EXPECT_EQ(scoped_again(2), -2);
}

}  // namespace
}  // namespace yard::testing
