// SPDX-License-Identifier: Apache-2.0
// Tests functions with active backends: results, which implementations run and in which order,
// activation, scopes. Each known defect of specialization in FlagTree has a test that it does not
// exist here.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "functions_testing.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Active : public FunctionTest {
 protected:
  static yard::Functions functions() { return runtime().functions(); }
  // Registers an implementation for a backend that is not registered itself.
  template <class S, class F>
  static void provide(const Function<S>& f, const char* name, F run, int priority = 0) {
    Changes c;
    implement(c, f, name, std::move(run), {}, {.priority = priority});
    const Status s = runtime().apply(std::move(c)).status();
    ASSERT_TRUE(s.ok()) << s.to_string();
  }
  template <class S, class F>
  static void engage(const Function<S>& f, F run, const char* name = "acme") {
    provide(f, name, std::move(run));
    ASSERT_TRUE(functions().activate(name).ok());
  }
};

// ---- Results ----

template <class T>
struct FalsyResult : Active {};
struct Empty {
  bool operator==(const Empty&) const = default;
};
enum class Colour { kNone = 0, kRed };
using Falsy = ::testing::Types<bool, int, double, Colour, int*, Empty, std::string,
                               std::optional<int>, std::vector<int>, std::unique_ptr<int>>;
TYPED_TEST_SUITE(FalsyResult, Falsy);

// In FlagTree, `spec(...) or default(...)` runs both functions if the first returns zero.
TYPED_TEST(FalsyResult, ComesBackAsItIs) {
  const Function<TypeParam()> f{"a_falsy", "f"};
  bool default_ran = false;
  this->engage(f, [] { return TypeParam{}; });
  EXPECT_TRUE(f.call_or([&] { return default_ran = true, TypeParam{}; }) == TypeParam{});
  EXPECT_FALSE(default_ran);
}

// FlagTree evaluates the default first, so its side effects happen twice.
TEST_F(Active, TheDefaultRunsOnlyIfNoBackendDoes) {
  const Function<void(int)> tell{"a_group", "tell"};
  int told = 0, by_default = 0;
  tell.call_or([&] { ++by_default; }, 7);
  EXPECT_EQ(by_default, 1);
  engage(tell, [&told](int x) { told = x; });
  tell.call_or([&] { ++by_default; }, 7);
  EXPECT_EQ(told, 7);
  EXPECT_EQ(by_default, 1);
}

TEST_F(Active, ExceptionsReachTheCallerAndOpenNoBreaker) {
  const Function<int()> f{"a_group", "throws"};
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = alive;
  engage(f, [alive]() -> int { throw std::runtime_error("not today"); });
  alive.reset();
  for (int i = 0; i < 20; ++i) EXPECT_THROW(f.call_or([] { return 1; }), std::runtime_error);
  EXPECT_TRUE(remove("acme").wait().ok());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(f.call_or([] { return 1; }), 1);
}

TEST_F(Active, AFunctionWithoutADefaultThrows) {
  const Function<int()> f{"a_group", "bare"};
  EXPECT_THROW(f(), Error);
  engage(f, [] { return 2; });
  EXPECT_EQ(f(), 2);
}

// ---- Who is asked ----

// In FlagTree, names work only in local scopes once a backend is active.
const Function<int(int)> g_early{
    "a_early", "early", [](int x) { return x + 1; }, {.selection = Selection::kActive}};
const int g_early_result = g_early(6);

TEST_F(Active, AFunctionMayBeUsedBeforeABackendIsActive) {
  EXPECT_EQ(g_early_result, 7);
  engage(g_early, [](Next<int(int)> next, int x) { return 100 * next(x + 1); });
  EXPECT_EQ(g_early(1), 300) << "the body is given the arguments";
  remove("acme");
  EXPECT_EQ(g_early(1), 2);
}

TEST_F(Active, RegisteringActivatesNothing) {
  const Function<int()> f{"a_group", "idle"};
  const auto ask = [&] { return f.call_or([] { return 1; }); };
  provide(f, "acme", [] { return 2; });
  EXPECT_EQ(ask(), 1);
  EXPECT_EQ(provider("a_group/idle", "acme").detail, "its backend is not active");
  ASSERT_TRUE(functions().activate("acme").ok());
  ASSERT_TRUE(functions().activate("acme", {2, 1}).ok());
  EXPECT_EQ(ask(), 2);
  EXPECT_STREQ(f.last_selected(), "acme");
  EXPECT_EQ(info("a_group/idle").selection, Selection::kActive);
  const FunctionProvider p = provider("a_group/idle", "acme");
  EXPECT_TRUE(p.on && p.active && !p.takes_next);
  EXPECT_THAT(p.devices, ElementsAre(Device{2, 1}));
  EXPECT_EQ(functions().activations().size(), 2u);
  ASSERT_TRUE(functions().deactivate("acme").ok());
  EXPECT_EQ(ask(), 1);
}

TEST_F(Active, OfEqualPriorityTheLatestComesFirst) {
  const Function<int()> f{"a_group", "order"};
  const auto ask = [&] { return f.call_or([] { return 0; }); };
  engage(
      f, [] { return 1; }, "one");
  engage(
      f, [] { return 2; }, "two");
  EXPECT_EQ(ask(), 2);
  ASSERT_TRUE(functions().activate("one").ok());
  EXPECT_EQ(ask(), 1);
  provide(
      f, "three", [] { return 3; }, 10);
  ASSERT_TRUE(functions().activate("three").ok());
  ASSERT_TRUE(functions().activate("two").ok());
  EXPECT_EQ(ask(), 3);
  std::vector<std::string> order;
  for (const FunctionProvider& p : info("a_group/order").providers) order.push_back(p.backend);
  EXPECT_THAT(order, ElementsAre("three", "two", "one"));
}

TEST_F(Active, AnImplementationThatTakesNextMayCallTheOthersAndTheDefault) {
  const Function<std::string(int)> f{"a_group", "chain"};
  const auto ask = [&](int x) {
    return f.call_or([&] { return "default" + std::to_string(x); }, x);
  };
  engage(
      f, [](Next<std::string(int)> next, int x) { return "a(" + next(x + 1) + ")"; }, "a");
  EXPECT_EQ(ask(1), "a(default1)");
  engage(
      f, [](Next<std::string(int)> next, int x) { return "b(" + next(x) + next(x) + ")"; }, "b");
  EXPECT_EQ(ask(1), "b(a(default1)a(default1))");
  engage(
      f, [](int x) { return "c" + std::to_string(x); }, "c");
  EXPECT_EQ(ask(1), "c1") << "one that takes no next runs alone";
  ASSERT_TRUE(functions().activate("a").ok());
  EXPECT_EQ(ask(1), "a(c2)");
  EXPECT_TRUE(provider("a_group/chain", "a").takes_next);
}

TEST_F(Active, DevicesAndScopesComeBeforeTheProcess) {
  const Function<std::string()> f{"a_group", "where"};
  const auto ask = [&] { return f.call_or([] { return std::string("default"); }); };
  for (const char* name : {"process", "device", "kind", "outer", "inner"})
    provide(f, name, [name](Next<std::string()> next) { return name + ("," + next()); });
  ASSERT_TRUE(functions().activate("process").ok());
  ASSERT_TRUE(functions().activate("device", {2, 1}).ok());
  ASSERT_TRUE(functions().activate("kind", {2, -1}).ok());
  EXPECT_EQ(ask(), "process,default");
  {
    const ScopedPolicy on(Scope().device({2, 1}));
    EXPECT_EQ(ask(), "kind,device,process,default");
    const ScopedPolicy other(Scope().device({2, 0}));
    EXPECT_EQ(ask(), "kind,process,default");
    const ScopedPolicy elsewhere(Scope().device({1, 0}));
    EXPECT_EQ(ask(), "process,default");
  }
  const ScopedPolicy outer(Scope().backend("outer"));
  EXPECT_EQ(ask(), "outer,process,default");
  const ScopedPolicy on(Scope().device({2, 1}));
  const ScopedPolicy inner(Scope().backend("inner"));
  EXPECT_EQ(ask(), "inner,outer,kind,device,process,default");
  const ScopedPolicy again(Scope().backend("process"));
  EXPECT_EQ(ask(), "process,inner,outer,kind,device,default") << "a backend is asked once";
  std::string elsewhere;
  std::thread([&] { elsewhere = ask(); }).join();
  EXPECT_EQ(elsewhere, "process,default") << "a scope is its thread's";
}

TEST_F(Active, ACallMayUseItselfAndSwitchAndRemoveItsBackend) {
  const Function<int(int)> f{"a_group", "recursive"};
  engage(f, [&f](int n) -> int { return n == 0 ? 0 : 1 + f.call_or([] { return -1000; }, n - 1); });
  EXPECT_EQ(f.call_or([] { return -1; }, 100), 100);
  const Function<int()> leaves{"a_group", "leaves"};
  engage(
      leaves,
      [] {
        EXPECT_TRUE(functions().deactivate("gone").ok());
        const Ticket gone = remove("gone");
        EXPECT_FALSE(gone.done());
        EXPECT_EQ(gone.wait().code(), Code::kWouldDeadlock);
        return 5;
      },
      "gone");
  EXPECT_EQ(leaves.call_or([] { return 1; }), 5);
  EXPECT_EQ(leaves.call_or([] { return 1; }), 1);
}

TEST_F(Active, AHangingCallDelaysNoOther) {
  for (const bool in_scope : {false, true}) {
    std::atomic<bool> inside{false}, open{false};
    const auto alive = std::make_shared<int>();
    const Function<int()> f{"a_group", "hangs"};
    engage(
        f,
        [&] {
          inside = true;
          while (!open.load()) std::this_thread::yield();
          return 2;
        },
        "stuck");
    provide(f, "idle", [alive] { return 3; });
    std::thread caller([&] {
      const ScopedPolicy in(in_scope ? Scope().backend("stuck") : Scope());
      EXPECT_EQ(f.call_or([] { return 1; }), 2);
    });
    while (!inside.load()) std::this_thread::yield();
    const Ticket idle = remove("idle"), stuck = remove("stuck");
    EXPECT_TRUE(idle.wait(std::chrono::seconds(30)).ok()) << "in a scope: " << in_scope;
    EXPECT_EQ(alive.use_count(), 1);
    EXPECT_FALSE(stuck.done());
    open = true;
    caller.join();
    EXPECT_TRUE(stuck.wait(std::chrono::seconds(30)).ok());
    ASSERT_TRUE(functions().deactivate("stuck").ok());
  }
}

// ---- Activation ----

TEST_F(Active, ActivatingWhatCannotBeActiveIsAnError) {
  const Function<int()> f{"a_group", "known"};
  EXPECT_THAT(functions().activate("acme").to_string(), HasSubstr("none does"));
  provide(f, "acme", [] { return 1; });
  EXPECT_THAT(functions().activate("acm").to_string(), HasSubstr("did you mean 'acme'?"));
  EXPECT_THAT(functions().activate("acme", {99, 0}).to_string(), HasSubstr("type 99"));
  EXPECT_THAT(functions().deactivate("acme").to_string(), HasSubstr("nothing is"));
  ASSERT_TRUE(functions().activate("acme", {2, 0}).ok());
  EXPECT_THAT(functions().deactivate("acme").to_string(), HasSubstr("backend 'acme' on cuda"));

  static const char* const reasons[] = {"no such card"};
  plugin::Backend gone("gone");
  gone.reasons(reasons).probe([](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
    why->reason = YARD_REASON_OWN;
    return int32_t{YARD_OK};
  });
  runtime().apply(std::move(Changes().add_backend(gone.d))).or_throw();
  provide(f, "gone", [] { return 1; });
  EXPECT_THAT(functions().activate("gone").to_string(), HasSubstr("no such card"));
  ASSERT_TRUE(runtime().set_policy(switched("acme", false)).ok());
  EXPECT_THAT(functions().activate("acme").to_string(), HasSubstr("switched off"));
}

TEST_F(Active, ActivationSurvivesRemovingAndAddingABackend) {
  const Function<int()> f{"a_group", "back"};
  const auto ask = [&] { return f.call_or([] { return 1; }); };
  engage(f, [] { return 2; });
  remove("acme");
  EXPECT_EQ(ask(), 1);
  EXPECT_TRUE(functions().activations()[0].waiting);
  provide(f, "acme", [] { return 3; });
  EXPECT_EQ(ask(), 3);
  ASSERT_TRUE(runtime().reset().ok());
  EXPECT_EQ(ask(), 1);
  EXPECT_THAT(functions().activations(), IsEmpty());
}

// FlagTree does not notice names that are called but not defined, or defined but not called.
TEST_F(Active, UndeclaredFunctionsOfAnActiveBackendAreLoggedUnderNoLock) {
  const Function<int()> declared{"a_group", "matmul_kernel"};
  auto typo = std::make_unique<Function<int()>>("a_group", "matmul_kernl");
  provide(*typo, "acme", [] { return 1; });
  typo.reset();
  std::vector<std::string> logged;
  set_log_sink([&](const LogMessage& m) {
    logged.emplace_back(m.text);
    EXPECT_TRUE(runtime().set_policy({}).ok());  // takes locks
  });
  EXPECT_TRUE(functions().activate("acme").ok());
  EXPECT_THAT(logged, ElementsAre(AllOf(HasSubstr("not declared: 'a_group/matmul_kernl'"),
                                        HasSubstr("did you mean 'a_group/matmul_kernel'?"))));
  EXPECT_FALSE(info("a_group/matmul_kernl").declared);
  auto later = std::make_unique<Function<int()>>("a_group", "come_later");
  Changes c;
  implement(c, *later, "acme", [] { return 1; });
  later.reset();
  runtime().apply(std::move(c)).or_throw();
  EXPECT_THAT(logged.back(), HasSubstr("'a_group/come_later'"));
}

}  // namespace
}  // namespace yard::testing
