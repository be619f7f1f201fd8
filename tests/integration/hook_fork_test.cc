// SPDX-License-Identifier: Apache-2.0
// Hooks in forked children: a switch in progress at the fork is complete or absent in the child, and backends that
// cannot survive a fork are excluded.
#include <atomic>
#include <deque>
#include <string>
#include <thread>

#include "base/testing_fork.h"
#include "hook_testing.h"

namespace yard::testing {
namespace {

using base::true_in_child;

TEST_F(Hooked, AChildHasAllHooksOfASetOrNone) {
  std::deque<Hook<int()>> several;
  HookSet set("acme");
  for (int i = 0; i < 8; ++i) {
    const std::string name = "forked." + std::to_string(i);
    const Hook<int()>& hook = several.emplace_back(runtime, name.c_str());
    EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
    set.add(hook, [] { return 2; });
  }
  ASSERT_TRUE(hooks.add(set).ok());
  std::atomic<bool> stop{false};
  std::thread switching([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      hooks.activate("acme").or_throw();
      hooks.deactivate("acme").or_throw();
    }
  });
  const auto agree = [&] {
    const bool active = !hooks.list().activations.empty();
    for (const Hook<int()>& hook : several)
      if (call_or(hook, [] { return 1; }) != (active ? 2 : 1) || hook.engaged() != active)
        return false;
    // And it goes on from there.
    if (active && !hooks.deactivate("acme").ok()) return false;
    if (!hooks.activate("acme").ok()) return false;
    for (const Hook<int()>& hook : several)
      if (call_or(hook, [] { return 1; }) != 2) return false;
    return true;
  };
  int wrong = 0;
  for (int i = 0; i < 300; ++i) wrong += true_in_child(agree) ? 0 : 1;
  stop = true;
  switching.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Hooked, HooksThatCannotSurviveAForkAreExcludedInAChild) {
  const Hook<int()> hook(runtime, "unsafe");
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "acme";
  backend.flags = YARD_BACKEND_FORK_UNSAFE;
  Changes changes;
  changes.add_backend(backend);
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  engage(hook, [] { return 2; });
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
  Policy p;
  p.backends["other"] = false;
  const Scope policy(p);
  {
    const ScopedPolicy in(policy);
    EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
    EXPECT_TRUE(true_in_child([&] { return call_or(hook, [] { return 1; }) == 1; }));
  }
  const HookScope scope = hooks.scope("acme").value();
  EXPECT_TRUE(true_in_child([&] {
    const ScopedHooks in(scope);
    const HookListing list = hooks.list();
    return call_or(hook, [] { return 1; }) == 1 && !hook.engaged() && !list.hooks[0].engaged &&
           list.hooks[0].providers[0].off.find("forked child") != std::string::npos;
  }));
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
}

}  // namespace
}  // namespace yard::testing
