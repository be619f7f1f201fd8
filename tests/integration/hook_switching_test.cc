// SPDX-License-Identifier: Apache-2.0
// Which hooks are engaged while backends are switched, with several runtimes, hanging calls, and hooks added later.
#include <gmock/gmock.h>
#include <yard/log.h>

#include <atomic>
#include <memory>
#include <thread>

#include "hook_testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Hooked, AScopeBelongsToOneRuntime) {
  Runtime other(RuntimeSettings{false, 64, false});
  const Hook<int()> here(runtime, "same"), there(other, "same");
  ASSERT_TRUE(hooks.add(HookSet("acme").add(here, [] { return 2; })).ok());
  ASSERT_TRUE(other.hooks().add(HookSet("acme").add(there, [] { return 3; })).ok());
  const HookScope scope = hooks.scope("acme").value();
  {
    const ScopedHooks in(scope);
    EXPECT_EQ(call_or(here, [] { return 1; }), 2);
    EXPECT_EQ(call_or(there, [] { return 1; }), 1);
    EXPECT_FALSE(there.engaged());
    ASSERT_TRUE(other.hooks().activate("acme").ok());
    EXPECT_EQ(call_or(there, [] { return 1; }), 3)
        << "it is active, and not asked for by that scope";
  }
  EXPECT_EQ(call_or(here, [] { return 1; }), 1);
}

TEST_F(Hooked, ABackendThatIsSwitchedOffIsExcludedUntilItIsOnAgain) {
  const Hook<int()> hook(runtime, "switched");
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "acme";
  Changes changes;
  changes.add_backend(backend);
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  engage(hook, [] { return 2; });
  const HookScope scope = hooks.scope("acme").value();
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
  Policy off;
  off.backends["acme"] = false;
  ASSERT_TRUE(runtime.set_policy(off).ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
  EXPECT_FALSE(listed("switched")->engaged);
  EXPECT_EQ(listed("switched")->providers[0].off, "switched off by the program");
  {
    const ScopedHooks in(scope);
    EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
  }
  ASSERT_TRUE(runtime.set_policy({}).ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2) << "what is active stays so";
  EXPECT_EQ(listed("switched")->providers[0].off, "");
}

// A backend whose record comes after its activation, and says that it is off.
TEST_F(Hooked, ABackendThatIsOffByItselfIsNotEngagedByAnEarlierActivation) {
  const Hook<int()> hook(runtime, "early");
  engage(hook, [] { return 2; });
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "acme", backend.enable = YARD_ENABLE_OFF;
  Changes changes;
  changes.add_backend(backend);
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
}

TEST_F(Hooked, UndeclaredHooksAreLoggedWithoutHoldingALock) {
  const Hook<int()> hook(runtime, "declared");
  engage(hook, [] { return 2; });
  int told = 0;
  set_log_sink([&](const LogMessage& m) {
    if (m.text.find("'come_later'") == m.text.npos) return;
    ++told;
    EXPECT_TRUE(runtime.set_policy({}).ok());  // holds no lock
  });
  HookSet more("acme");
  more.add<int()>("come_later", [] { return 1; });
  EXPECT_TRUE(hooks.add(more).ok());
  set_log_sink({});
  EXPECT_EQ(told, 1);
}

// Of the two ways that end in one implementation: a plain hook of the process, and one of a scope.
TEST_F(Hooked, AHangingCallDelaysNoOther) {
  for (const bool in_scope : {false, true}) {
    std::atomic<bool> inside{false}, open{false};
    const auto alive = std::make_shared<int>();
    {
      const Hook<int()> hook(runtime, "hangs");
      const auto hang = [&] {
        inside = true;
        while (!open.load()) std::this_thread::yield();
        return 2;
      };
      engage(hook, hang, "stuck");
      ASSERT_TRUE(hooks.add(HookSet("idle").add(hook, [alive] { return 3; })).ok());
      const HookScope scope = hooks.scope("stuck").value();
      std::thread caller([&] {
        if (in_scope) {
          const ScopedHooks in(scope);
          EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
        } else {
          EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
        }
      });
      while (!inside.load()) std::this_thread::yield();
      const auto idle = hooks.remove("idle"), stuck = hooks.remove("stuck");
      ASSERT_TRUE(idle.ok() && stuck.ok());
      EXPECT_TRUE(idle->wait(std::chrono::seconds(30)).ok()) << "in a scope: " << in_scope;
      EXPECT_EQ(alive.use_count(), 1);
      EXPECT_FALSE(stuck->done());
      open = true;
      caller.join();
      EXPECT_TRUE(stuck->wait(std::chrono::seconds(30)).ok());
      ASSERT_TRUE(hooks.deactivate("stuck").ok());
    }
  }
}

}  // namespace
}  // namespace yard::testing
