// SPDX-License-Identifier: Apache-2.0
// What may provide hooks and be activated, which mismatches are reported, and the state in a forked child.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook_testing.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Hooked, ASetIsAddedCompletelyOrNotAtAll) {
  const Hook<int()> good(runtime, "good");
  const Hook<int()> other(runtime, "other");
  HookSet set("acme");
  set.add(good, [] { return 1; }).add<double()>("other", [] { return 1.0; });
  EXPECT_FALSE(hooks.add(set).ok());
  EXPECT_TRUE(listed("good")->providers.empty());
}

TEST_F(Hooked, AnotherSignatureUnderTheSameNameIsRefused) {
  const Hook<int(int)> hook(runtime, "typed");
  HookSet set("acme");
  set.add<int(double)>("typed", [](double) { return 1; });
  const Status s = hooks.add(set);
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_THAT(s.to_string(),
              AllOf(HasSubstr("declared: i32(i32)"), HasSubstr("provided: i32(f64)")));
  HookSet first("first"), second("second");
  first.add<int(int)>("fresh", [](int) { return 1; });
  second.add<int(long)>("fresh", [](long) { return 1; });
  ASSERT_TRUE(hooks.add(first).ok());
  EXPECT_THAT(hooks.add(second).to_string(), HasSubstr("than that of backend 'first'"));
}

TEST_F(Hooked, ADeclarationThatComesLaterAndDiffersIsListedAndNeverCalled) {
  HookSet set("acme");
  set.add<int(int)>("late", [](int) { return 1; });
  ASSERT_TRUE(hooks.add(set).ok());
  ASSERT_TRUE(hooks.activate("acme").ok());
  const Hook<int(double)> hook(runtime, "late");
  EXPECT_EQ(call_or(
                hook, [] { return 5; }, 1.0),
            5);
  EXPECT_THAT(listed("late")->problem, HasSubstr("backend 'acme' provides it as i32(i32)"));
}

TEST_F(Hooked, ConflictsOfOneBackendNameBoth) {
  const Hook<int()> hook(runtime, "twice");
  HookSet set("acme");
  set.add(hook, [] { return 1; });
  ASSERT_TRUE(hooks.add(set).ok());
  EXPECT_TRUE(hooks.add(set).ok()) << "the same again is fine";
  EXPECT_THAT(hooks
                  .add(HookSet("acme").add(
                      hook, [] { return 2; }, 4))
                  .to_string(),
              AllOf(HasSubstr("by backend 'acme' already"), HasSubstr("priority 0 and 4")));
}

// What is for every device of a type needs only one of them.
TEST_F(Hooked, ALostDeviceExcludesActivationOnThatDeviceOnly) {
  const Hook<int()> hook(runtime, "known");
  ASSERT_TRUE(hooks.add(HookSet("acme").add(hook, [] { return 1; })).ok());
  runtime.health().device_lost({2, 0}, "fell off the bus");
  EXPECT_THAT(hooks.activate("acme", {2, 0}).to_string(), HasSubstr("device cuda is lost"));
  EXPECT_TRUE(hooks.activate("acme", {2, 1}).ok());
  EXPECT_TRUE(hooks.activate("acme", {2, -1}).ok());
}

TEST_F(Hooked, ActivatingAnUnknownBackendIsAnError) {
  const Hook<int()> hook(runtime, "known");
  EXPECT_THAT(hooks.activate("acme").to_string(), HasSubstr("none does"));
  ASSERT_TRUE(hooks.add(HookSet("acme").add(hook, [] { return 1; })).ok());
  EXPECT_THAT(hooks.activate("acm").to_string(), HasSubstr("did you mean 'acme'?"));
  EXPECT_THAT(hooks.activate("").to_string(), HasSubstr("invalid name of a backend"));
  EXPECT_THAT(hooks.activate("acme", {99, 0}).to_string(), HasSubstr("type 99"));
  EXPECT_THAT(hooks.deactivate("acme").to_string(), HasSubstr("nothing is"));
  ASSERT_TRUE(hooks.activate("acme", {2, 0}).ok());
  EXPECT_THAT(hooks.deactivate("acme").to_string(), HasSubstr("backend 'acme' on cuda"));
  EXPECT_THAT(hooks.remove("acm").status().to_string(), HasSubstr("did you mean 'acme'?"));
}

TEST_F(Hooked, ABackendOfKernelsMustExistAndBeSwitchedOn) {
  const Hook<int()> hook(runtime, "hook");
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "gone";
  static const char* const reasons[] = {"no such card"};
  backend.reasons = reasons, backend.reason_count = 1;
  backend.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
    why->reason = YARD_REASON_OWN;
    return int32_t{YARD_OK};
  };
  yard_backend_t off{};
  off.size = sizeof off, off.name = "off";
  Changes changes;
  changes.add_backend(backend).add_backend(off);
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  ASSERT_TRUE(hooks.add(HookSet("gone").add(hook, [] { return 1; })).ok());
  ASSERT_TRUE(hooks.add(HookSet("off").add(hook, [] { return 1; })).ok());
  EXPECT_THAT(hooks.activate("gone").to_string(), HasSubstr("no such card"));
  Policy policy;
  policy.backends["off"] = false;
  ASSERT_TRUE(runtime.set_policy(policy).ok());
  EXPECT_THAT(hooks.activate("off").to_string(), HasSubstr("switched off"));
}

// ---- Listing, removing, fork -------------------------------------------------------------------

TEST_F(Hooked, TheListShowsWhatIsDeclaredProvidedAndEngaged) {
  const Hook<int()> lonely(runtime, "lonely"), engaged(runtime, "engaged");
  HookSet set("acme");
  set.add(
         engaged, [](Next<int()> next) { return next(); }, 3)
      .add<void()>("orphan", [] {});
  ASSERT_TRUE(hooks.add(set).ok());
  ASSERT_TRUE(hooks.activate("acme").ok());
  ASSERT_TRUE(hooks.activate("acme", {2, 1}).ok());
  const HookListing list = hooks.list();
  EXPECT_THAT(list.undeclared(), ElementsAre("orphan"));
  EXPECT_THAT(list.unprovided(), Contains("lonely"));
  ASSERT_NE(list.find("engaged"), nullptr);
  const HookInfo& info = *list.find("engaged");
  EXPECT_TRUE(info.declared && info.engaged);
  EXPECT_EQ(info.signature, "i32()");
  ASSERT_EQ(info.providers.size(), 1u);
  const HookProvider& p = info.providers[0];
  EXPECT_TRUE(p.active && p.takes_next && !p.definition);
  EXPECT_EQ(p.priority, 3);
  EXPECT_THAT(p.devices, ElementsAre(Device{2, 1}));
  EXPECT_EQ(list.activations.size(), 2u);
  EXPECT_EQ(list.find("nobody's"), nullptr);
}

TEST_F(Hooked, TwoDeclarationsThatDifferAreReported) {
  const Hook<int()> one(runtime, "both");
  const Hook<void()> other(runtime, "both");
  EXPECT_THAT(listed("both")->problem, HasSubstr("also declared as"));
  const Hook<int()> bad(runtime, "has blanks");
  EXPECT_EQ(call_or(bad, [] { return 4; }), 4);
  EXPECT_THAT(listed("has blanks")->problem, HasSubstr("no hook of that name can be provided"));
}

TEST_F(Hooked, ADestroyedHookIsNoLongerDeclared) {
  { const Hook<int()> hook(runtime, "for_a_while"); }
  EXPECT_FALSE(listed("for_a_while").has_value());
}

TEST_F(Hooked, ActivationSurvivesRemovingAndAddingABackend) {
  const Hook<int()> hook(runtime, "back");
  const auto set = [&](int n) { return HookSet("acme").add(hook, [n] { return n; }); };
  engage(hook, [] { return 2; });
  ASSERT_TRUE(hooks.remove("acme").ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
  EXPECT_TRUE(hooks.list().activations[0].waiting);
  ASSERT_TRUE(hooks.add(set(3)).ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 3);
  ASSERT_TRUE(runtime.reset().ok());
  EXPECT_EQ(call_or(hook, [] { return 1; }), 1);
  EXPECT_THAT(hooks.list().activations, IsEmpty());
}

TEST_F(Hooked, RuntimesAreIndependent) {
  Runtime other(RuntimeSettings{false, 64, false});
  const Hook<int()> here(runtime, "same"), there(other, "same");
  engage(here, [] { return 2; });
  EXPECT_EQ(call_or(here, [] { return 1; }), 2);
  EXPECT_EQ(call_or(there, [] { return 1; }), 1);
}

TEST_F(Hooked, AForkedChildKeepsActiveHooks) {
  const Hook<int()> hook(runtime, "forked");
  engage(hook, [] { return 2; });
  const auto ask = [&] { return call_or(hook, [] { return 1; }); };
  EXPECT_EQ(ask(), 2);
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = ask() == 2 && hook.engaged();
    good &= hooks.deactivate("acme").ok() && ask() == 1;
    good &= hooks.activate("acme").ok() && ask() == 2;
    good &= hooks.remove("acme").ok() && ask() == 1;
    ::_exit(good ? 0 : 1);
  }
  int code = 0;
  ASSERT_EQ(::waitpid(child, &code, 0), child);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(ask(), 2);
}

}  // namespace
}  // namespace yard::testing
