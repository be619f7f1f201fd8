// SPDX-License-Identifier: Apache-2.0
// Policy of scopes decides about hooks as it does about kernels; and backends without kernels have a switch.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <yard/plugin.hpp>

#include "hook_testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

Policy switched(const char* name, bool on) {
  Policy p;
  p.backends[name] = on;
  return p;
}

struct ScopedHookPolicy : Hooked {
  const Hook<int()> hook{runtime, "scoped_policy"};

  void SetUp() override {
    Changes c;
    c.add_backend(plugin::Backend("acme").vendor("maker").d);
    ASSERT_TRUE(runtime.apply(std::move(c)).ok());
    engage(
        hook, [] { return 1; }, "plain");
    engage(
        hook, [] { return 2; }, "acme");
  }
  int call() const {
    return call_or(hook, [] { return 0; });
  }
};

TEST_F(ScopedHookPolicy, ABackendIsSwitchedOffForTheBlock) {
  EXPECT_EQ(call(), 2);
  for (int i = 0; i < 3; ++i) {
    const ScopedPolicy in(switched("acme", false));
    EXPECT_EQ(call(), 1);
    const ScopedPolicy inner(switched("plain", false));
    EXPECT_EQ(call(), 0);
    EXPECT_FALSE(hook.engaged());
  }
  EXPECT_EQ(call(), 2);
}

TEST_F(ScopedHookPolicy, ABackendIsSwitchedOnForTheBlock) {
  Policy p = switched("acme", false);
  p.backends["plain"] = false;
  runtime.set_policy(p).or_throw();
  EXPECT_EQ(call(), 0);
  const ScopedPolicy in(switched("acme", true));
  EXPECT_TRUE(hook.engaged());
  EXPECT_EQ(call(), 2);
}

TEST_F(ScopedHookPolicy, VendorsAreDeniedAndAllowed) {
  {
    const ScopedPolicy in(Scope().deny_vendors({"maker"}));
    EXPECT_EQ(call(), 1);
  }
  {
    const ScopedPolicy in(Scope().allow_vendors({"other"}));
    EXPECT_EQ(call(), 1);
  }
  {
    const ScopedPolicy in(Scope().allow_vendors({"maker"}));
    EXPECT_EQ(call(), 2);
  }
}

TEST_F(ScopedHookPolicy, ReferenceOnlyRunsTheDefault) {
  Policy p;
  p.reference_only = true;
  {
    const ScopedPolicy in(p);
    EXPECT_EQ(call(), 0);
  }
  runtime.set_policy(p).or_throw();
  EXPECT_EQ(call(), 0);
  EXPECT_EQ(listed("scoped_policy")->providers[0].off,
            "the master switch: every call is the default");
  EXPECT_TRUE(hooks.activate("plain").ok()) << "what is active counts again later";
  p.reference_only = false;
  const ScopedPolicy in(p);
  EXPECT_EQ(call(), 1);
}

TEST_F(ScopedHookPolicy, ItAppliesToDevicesAndScopesOfHooks) {
  ASSERT_TRUE(hooks.activate("acme", {1, 0}).ok());
  const HookScope plain = hooks.scope("plain").value();
  const ScopedPolicy in(switched("acme", false));
  {
    const ScopedDevice on({1, 0});
    EXPECT_EQ(call(), 1);
  }
  const ScopedHooks first(plain);
  const ScopedPolicy inner(switched("plain", false));
  EXPECT_EQ(call(), 0);
}

TEST_F(ScopedHookPolicy, TheNextInTheChainIsOneThatTheScopeAllows) {
  engage(
      hook, [](Next<int()> next) { return 10 + next(); }, "asks");
  EXPECT_EQ(call(), 12);
  const ScopedPolicy in(switched("acme", false));
  EXPECT_EQ(call(), 11);
}

TEST_F(ScopedHookPolicy, ChangesOfTheProcessAreSeenInsideTheScope) {
  const ScopedPolicy in(switched("acme", false));
  EXPECT_EQ(call(), 1);
  ASSERT_TRUE(hooks.deactivate("plain").ok());
  EXPECT_EQ(call(), 0);
  ASSERT_TRUE(hooks.activate("plain").ok());
  EXPECT_EQ(call(), 1);
  runtime.set_policy(switched("plain", false)).or_throw();
  EXPECT_EQ(call(), 0);
}

TEST_F(ScopedHookPolicy, ManyScopesAreServed) {
  for (int i = 0; i < 200; ++i) {
    Policy p = switched("acme", i % 2 == 0);
    p.backends["none_" + std::to_string(i)] = false;
    const ScopedPolicy in(std::move(p));
    ASSERT_EQ(call(), i % 2 == 0 ? 2 : 1);
  }
}

// A removed backend is freed although scopes have called its hooks.
TEST_F(ScopedHookPolicy, ScopesKeepNothingFromBeingFreed) {
  {
    const ScopedPolicy in(switched("acme", false));
    EXPECT_EQ(call(), 1);
  }
  const Ticket gone = hooks.remove("plain").value();
  EXPECT_TRUE(gone.wait(std::chrono::seconds(30)).ok());
}

TEST(HooksOnlyBackends, AreSwitchedByTheEnvironment) {
  Runtime runtime{RuntimeSettings{false, 64, true}};
  const Hook<int()> hook(runtime, "switched_by_environment");
  ASSERT_TRUE(runtime.hooks().add(HookSet("hooks-only.2").add(hook, [] { return 1; })).ok());
  ASSERT_TRUE(runtime.hooks().activate("hooks-only.2").ok());
  const auto call = [&] { return call_or(hook, [] { return 0; }); };
  EXPECT_EQ(call(), 1);
  ::setenv("YARD_BACKEND_HOOKS_ONLY_2", "off", 1);
  EXPECT_TRUE(runtime.reload_environment().ok());
  for (const Problem& p : runtime.problems()) EXPECT_EQ(p.message, "");
  EXPECT_EQ(call(), 0);
  const HookListing list = runtime.hooks().list();
  EXPECT_EQ(list.find("switched_by_environment")->providers[0].off,
            "switched off by YARD_BACKEND_HOOKS_ONLY_2");
  ::unsetenv("YARD_BACKEND_HOOKS_ONLY_2");
  EXPECT_TRUE(runtime.reload_environment().ok());
  EXPECT_EQ(call(), 1);
}

}  // namespace
}  // namespace yard::testing
