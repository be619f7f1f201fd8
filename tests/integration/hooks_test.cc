// SPDX-License-Identifier: Apache-2.0
// Hooks of one program: results, which implementations run, and in which order.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hook_testing.h"

namespace yard::testing {
namespace {

using ::testing::ElementsAre;

// ---- What comes back ---------------------------------------------------------------------------

template <class T>
struct FalsyResult : Hooked {};

struct Empty {
  bool operator==(const Empty&) const = default;
};
enum class Colour { kNone = 0, kRed };
using Falsy =
    ::testing::Types<bool, char, int, int64_t, uint8_t, float, double, Colour, int*, const char*,
                     std::nullptr_t, Empty, std::string, std::string_view, std::optional<int>,
                     std::vector<int>, std::unique_ptr<int>, std::shared_ptr<int>>;
TYPED_TEST_SUITE(FalsyResult, Falsy);

TYPED_TEST(FalsyResult, ComesBackAsItIs) {
  const Hook<TypeParam()> hook(this->runtime, "falsy");
  bool default_ran = false;
  const auto otherwise = [&] {
    default_ran = true;
    return TypeParam{};
  };
  this->engage(hook, [] { return TypeParam{}; });
  EXPECT_TRUE(call_or(hook, otherwise) == TypeParam{});
  EXPECT_TRUE(choose(hook, otherwise)() == TypeParam{});
  EXPECT_FALSE(default_ran);
}

TEST_F(Hooked, VoidWorksAndTheDefaultDoesNotRun) {
  const Hook<void(int)> hook(runtime, "tell");
  int told = 0, by_default = 0;
  call_or(
      hook, [&] { ++by_default; }, 7);
  EXPECT_EQ(by_default, 1);
  engage(hook, [&told](int x) { told = x; });
  call_or(
      hook, [&] { ++by_default; }, 7);
  EXPECT_EQ(told, 7);
  EXPECT_EQ(by_default, 1);
}

TEST_F(Hooked, ReferencesAndMoveOnlyTypesArePassed) {
  const Hook<int&(int&, std::unique_ptr<int>, const std::string&)> hook(runtime, "refer");
  int own = 1, other = 2;
  auto given = std::make_unique<int>(5);
  const auto otherwise = [&]() -> int& { return other; };
  EXPECT_EQ(&call_or(hook, otherwise, own, std::move(given), "text"), &other);
  ASSERT_NE(given, nullptr) << "arguments are touched only if a hook runs";
  engage(hook, [](int& x, std::unique_ptr<int> p, const std::string& s) -> int& {
    x += *p + static_cast<int>(s.size());
    return x;
  });
  EXPECT_EQ(&call_or(hook, otherwise, own, std::move(given), "text"), &own);
  EXPECT_EQ(own, 1 + 5 + 4);
  EXPECT_EQ(given, nullptr);
}

TEST_F(Hooked, ResultsConvertAsReturnStatementsDo) {
  const Hook<std::optional<int>(int)> hook(runtime, "maybe");
  EXPECT_EQ(call_or(
                hook, [] { return 3; }, 1),
            std::optional<int>(3));
  engage(hook, [](int x) { return x; });
  EXPECT_EQ(call_or(
                hook, [] { return std::nullopt; }, 4),
            std::optional<int>(4));
}

TEST_F(Hooked, ExceptionsReachTheCallerAndNothingIsLeaked) {
  const Hook<int()> hook(runtime, "throws");
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = alive;
  engage(hook, [alive]() -> int { throw std::runtime_error("not today"); });
  alive.reset();
  EXPECT_THROW(call_or(hook, [] { return 1; }), std::runtime_error);
  auto gone = hooks.remove("acme");
  ASSERT_TRUE(gone.ok());
  EXPECT_TRUE(gone->wait().ok());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
}

// ---- Who is asked ------------------------------------------------------------------------------

TEST_F(Hooked, RegisteringEngagesNothing) {
  const Hook<int()> hook(runtime, "idle");
  ASSERT_TRUE(hooks.add(HookSet("acme").add(hook, [] { return 2; })).ok());
  EXPECT_FALSE(hook.engaged());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
  ASSERT_TRUE(hooks.activate("acme").ok());
  EXPECT_TRUE(hook.engaged());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 2);
  ASSERT_TRUE(hooks.deactivate("acme").ok());
  EXPECT_FALSE(hook.engaged());
}

TEST_F(Hooked, AChosenDefinitionFollowsActivation) {
  const Hook<int(int)> hook(runtime, "kernel");
  const auto kernel = choose(hook, [](int x) { return x; });
  const auto copy = kernel;
  EXPECT_EQ(kernel(3), 3);
  engage(hook, [](int x) { return 10 * x; });
  EXPECT_EQ(kernel(3), 30);
  EXPECT_EQ(copy(3), 30);
  EXPECT_TRUE(kernel.engaged());
  ASSERT_TRUE(hooks.deactivate("acme").ok());
  EXPECT_EQ(kernel(3), 3);
}

TEST_F(Hooked, OfEqualPriorityTheLatestComesFirst) {
  const Hook<int()> hook(runtime, "order");
  const auto ask = [&] { return call_or(hook, [] { return 0; }); };
  engage(
      hook, [] { return 1; }, "one");
  engage(
      hook, [] { return 2; }, "two");
  EXPECT_EQ(ask(), 2);
  ASSERT_TRUE(hooks.activate("one").ok());
  EXPECT_EQ(ask(), 1);
  HookSet three("three");
  three.add(
      hook, [] { return 3; }, 10);
  ASSERT_TRUE(hooks.add(three).ok());
  ASSERT_TRUE(hooks.activate("three").ok());
  ASSERT_TRUE(hooks.activate("two").ok());
  EXPECT_EQ(ask(), 3);
  std::vector<std::string> order;
  const HookListing list = hooks.list();
  for (const HookProvider& p : list.find("order")->providers) order.push_back(p.backend);
  EXPECT_THAT(order, ElementsAre("three", "two", "one"));
}

TEST_F(Hooked, AHookThatTakesNextMayCallTheOthersAndTheDefault) {
  const Hook<std::string(int)> hook(runtime, "chain");
  const auto ask = [&](int x) {
    return call_or(
        hook, [&] { return "default" + std::to_string(x); }, x);
  };
  engage(
      hook, [](Next<std::string(int)> next, int x) { return "a(" + next(x + 1) + ")"; }, "a");
  EXPECT_EQ(ask(1), "a(default1)");
  engage(
      hook, [](Next<std::string(int)> next, int x) { return "b(" + next(x) + next(x) + ")"; }, "b");
  EXPECT_EQ(ask(1), "b(a(default1)a(default1))");
  engage(
      hook, [](int x) { return "c" + std::to_string(x); }, "c");
  EXPECT_EQ(ask(1), "c1") << "one that takes no next runs alone";
  ASSERT_TRUE(hooks.activate("a").ok());
  EXPECT_EQ(ask(1), "a(c2)");
  const auto chosen = choose(hook, [](int x) { return "given" + std::to_string(x); });
  ASSERT_TRUE(hooks.deactivate("c").ok());
  ASSERT_TRUE(hooks.deactivate("b").ok());
  EXPECT_EQ(chosen(1), "a(given2)") << "a definition is given the arguments";
}

TEST_F(Hooked, DevicesAndScopesComeBeforeTheProcess) {
  const Hook<std::string()> hook(runtime, "where");
  const auto ask = [&] { return call_or(hook, [] { return std::string("default"); }); };
  for (const char* name : {"process", "device", "kind", "outer", "inner"}) {
    HookSet set(name);
    set.add(hook, [name](Next<std::string()> next) { return name + ("," + next()); });
    ASSERT_TRUE(hooks.add(set).ok());
  }
  ASSERT_TRUE(hooks.activate("process").ok());
  ASSERT_TRUE(hooks.activate("device", {2, 1}).ok());
  ASSERT_TRUE(hooks.activate("kind", {2, -1}).ok());
  EXPECT_EQ(ask(), "process,default");
  {
    const ScopedDevice on({2, 1});
    EXPECT_EQ(ask(), "kind,device,process,default");
    const ScopedDevice other({2, 0});
    EXPECT_EQ(ask(), "kind,process,default");
    const ScopedDevice elsewhere({1, 0});
    EXPECT_EQ(ask(), "process,default");
  }
  const ScopedHooks outer(hooks.scope("outer").value());
  EXPECT_EQ(ask(), "outer,process,default");
  const ScopedDevice on({2, 1});
  const ScopedHooks inner(hooks.scope("inner").value());
  EXPECT_EQ(ask(), "inner,outer,kind,device,process,default");
  const ScopedHooks again(hooks.scope("process").value());
  EXPECT_EQ(ask(), "process,inner,outer,kind,device,default") << "a backend is asked once";
  const ScopedHooks twice(hooks.scope("inner").value());
  EXPECT_EQ(ask(), "inner,process,outer,kind,device,default");
  std::string elsewhere;
  std::thread([&] { elsewhere = ask(); }).join();
  EXPECT_EQ(elsewhere, "process,default") << "a scope is its thread's";
}

TEST_F(Hooked, LoopsOfTheHostTakeScopesAlong) {
  const Hook<int()> hook(runtime, "loop");
  ASSERT_TRUE(hooks.add(HookSet("acme").add(hook, [] { return 2; })).ok());
  const ScopedHooks in(hooks.scope("acme").value());
  std::atomic<int> sum{0};
  struct Context {
    const Hook<int()>& hook;
    std::atomic<int>& sum;
  } context{hook, sum};
  yard_op_t op{};
  op.size = sizeof op, op.schema = "loop(out!: f32[n], x: f32[n]) where out may_alias x";
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "test";
  yard_kernel_t kernel{};
  kernel.size = sizeof kernel, kernel.op = "loop", kernel.id = "default.loop";
  kernel.backend = "test", kernel.kind = YARD_KIND_DEFAULT, kernel.self = &context;
  kernel.run = [](yard_call_t* call, const yard_value_t*, uint32_t) {
    return call->host->parallel_for(
        call->host->self, 64, 1,
        [](void* at, int64_t from, int64_t to) {
          auto& c = *static_cast<Context*>(at);
          for (; from < to; ++from) c.sum += call_or(c.hook, [] { return 1000; });
        },
        call->self);
  };
  Changes changes;
  changes.add_op(op).add_backend(backend).add_kernel(kernel);
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  float x[4];
  const TensorView view(x, DType::f32, {4});
  ASSERT_TRUE(runtime.call("loop", {view, view}).ok());
  EXPECT_EQ(sum.load(), 2 * 64);
}

TEST_F(Hooked, AHookMayUseItselfAndOthers) {
  const Hook<int(int)> hook(runtime, "recursive");
  engage(hook, [&hook](int n) -> int {
    return n == 0 ? 0
                  : 1 + call_or(
                            hook, [] { return -1000; }, n - 1);
  });
  EXPECT_EQ(call_or(
                hook, [] { return -1; }, 100),
            100);
}

TEST_F(Hooked, AnImplementationMaySwitchAndRemoveItself) {
  const Hook<int()> hook(runtime, "leaves");
  engage(hook, [this] {
    EXPECT_TRUE(hooks.deactivate("acme").ok());
    auto gone = hooks.remove("acme");
    EXPECT_TRUE(gone.ok());
    EXPECT_FALSE(gone->done());
    EXPECT_EQ(gone->wait().code(), Code::kWouldDeadlock);
    return 5;
  });
  EXPECT_EQ(call_or(hook, [] { return 1; }), 5);
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
}

Hook<int()> g_shared{"tests.shared"};

TEST(HookOfTheSharedRuntime, WorksWithoutSetup) {
  EXPECT_EQ(call_or(g_shared, [] { return 1; }), 1);
  Hooks hooks = Runtime::shared().hooks();
  ASSERT_TRUE(hooks.add(HookSet("tests").add(g_shared, [] { return 2; })).ok());
  ASSERT_TRUE(hooks.activate("tests").ok());
  EXPECT_EQ(call_or(g_shared, [] { return 1; }), 2);
  EXPECT_EQ(g_shared.name(), std::string("tests.shared"));
}

}  // namespace
}  // namespace yard::testing
