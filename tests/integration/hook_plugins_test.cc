// SPDX-License-Identifier: Apache-2.0
// Hooks from plugins: opened when they are needed, checked, run, taken out while they run, replaced.
#include <gmock/gmock.h>

#include <thread>

#include "plugin_files.h"

#include "../plugins/hooks.h"
#include "dispatch/core.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool is_mapped(const Folder& folder) {
  return read_file("/proc/self/maps").find(folder.path()) != std::string::npos;
}

struct HookPlugins : ::testing::Test {
  Folder folder;
  static int64_t ask(const Hook<int64_t(int64_t)>& hook, int64_t x = 4) {
    return call_or(
        hook, [] { return int64_t{-1}; }, x);
  }
};

TEST_F(HookPlugins, AreOpenedByTheFirstUseOfAHookTheirManifestNames) {
  folder.put("hooked");
  Runtime runtime(alone({folder.path()}));
  const Hook<int64_t(int64_t)> plugged(runtime, "plugged"), other(runtime, "not_theirs");
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok()) << "it is waited for";
  EXPECT_TRUE(runtime.hooks().list().activations[0].waiting);
  EXPECT_EQ(ask(other), -1);
  EXPECT_FALSE(is_mapped(folder));
  EXPECT_EQ(ask(plugged), 41);
  EXPECT_TRUE(is_mapped(folder));
  EXPECT_FALSE(runtime.hooks().list().activations[0].waiting);
  const HookListing list = runtime.hooks().list();
  EXPECT_TRUE(list.find("chained")->providers[0].definition);
}

TEST_F(HookPlugins, AreOpenedAgainAfterAReset) {
  folder.put("hooked");
  Runtime runtime(alone({folder.path()}));
  const Hook<int64_t(int64_t)> plugged(runtime, "plugged");
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(ask(plugged), 41);
  ASSERT_TRUE(runtime.reset().ok());
  EXPECT_EQ(ask(plugged), -1);
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(ask(plugged), 41);
}

TEST_F(HookPlugins, AreOpenedWhenTheyAreFoundForAHookInUse) {
  Runtime runtime(alone());
  const Hook<int64_t(int64_t)> plugged(runtime, "plugged");
  EXPECT_EQ(ask(plugged), -1);
  EXPECT_FALSE(runtime.hooks().activate("hooked").ok()) << "no plugin could provide it";
  folder.put("hooked");
  ASSERT_TRUE(runtime.plugins().discover({folder.path()}).ok());
  EXPECT_EQ(info_of(runtime, "hooked").state, PluginState::kLoaded);
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(ask(plugged), 41);
}

TEST_F(HookPlugins, ChainWithHooksOfTheProgramInCAndInCpp) {
  Runtime runtime(alone());
  const Hook<int64_t(int64_t)> plugged(runtime, "plugged"), chained(runtime, "chained");
  ASSERT_TRUE(runtime.plugins().load(folder.put("hooked")).ok());
  ASSERT_TRUE(runtime.plugins().load(folder.put("hooks_in_c")).ok());
  ASSERT_TRUE(runtime.hooks().activate("in_c").ok());
  EXPECT_EQ(ask(plugged), 40);
  EXPECT_EQ(ask(chained), 4);  // the default's -1, and 5
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(ask(chained), 401);
  HookSet own("own");
  own.add(chained, [](Next<int64_t(int64_t)> next, int64_t x) { return -next(x); });
  ASSERT_TRUE(runtime.hooks().add(own).ok());
  ASSERT_TRUE(runtime.hooks().activate("own").ok());
  EXPECT_EQ(ask(chained), -401);
}

TEST_F(HookPlugins, WithAnotherSignatureThanDeclaredAreRefusedAndLeaveNothing) {
  Runtime runtime(alone());
  const Hook<int64_t(double)> plugged(runtime, "plugged");
  const Status s = runtime.plugins().load(folder.put("hooked"));
  EXPECT_THAT(s.to_string(), AllOf(HasSubstr("conflict"), HasSubstr("declared: i64(f64)"),
                                   HasSubstr("provided: i64(i64)")));
  EXPECT_FALSE(is_mapped(folder));
  const HookListing list = runtime.hooks().list();
  EXPECT_EQ(list.find("chained"), nullptr) << "all or nothing";
  EXPECT_TRUE(list.find("plugged")->providers.empty());
}

TEST_F(HookPlugins, AreRemovedOnUnloadAndTheNewCodeRunsAfterReload) {
  Runtime runtime(alone());
  const Hook<int64_t(int64_t)> plugged(runtime, "plugged");
  const std::string path = folder.put("hooked");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(ask(plugged), 41);
  folder.put("hooked_v2", "hooked");
  const auto gone = runtime.plugins().unload("hooked");
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(ask(plugged), -1);
  ASSERT_TRUE(gone->wait().ok());
  EXPECT_FALSE(is_mapped(folder));
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  EXPECT_EQ(ask(plugged), 42) << "what is active stays so";
}

TEST_F(HookPlugins, AreNotClosedWhileAHookOfTheirsRuns) {
  Runtime runtime(alone());
  const Hook<int64_t(Gate*)> held(runtime, "held");
  ASSERT_TRUE(runtime.plugins().load(folder.put("hooked")).ok());
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  Gate gate;
  int64_t result = 0;
  std::thread caller([&] {
    result = call_or(
        held, [] { return int64_t{-1}; }, &gate);
  });
  while (!gate.inside.load()) std::this_thread::yield();
  const auto gone = runtime.plugins().unload("hooked");
  ASSERT_TRUE(gone.ok());
  EXPECT_FALSE(gone->done());
  EXPECT_TRUE(is_mapped(folder));
  EXPECT_EQ(gone->wait(std::chrono::milliseconds(20)).code(), Code::kDeadline);
  gate.open = true;
  caller.join();
  EXPECT_EQ(result, 1);
  EXPECT_TRUE(gone->wait().ok());
  EXPECT_FALSE(is_mapped(folder));
}

TEST_F(HookPlugins, ProvideImplementationsOfDispatchedFunctions) {
  Runtime runtime(alone());
  ASSERT_TRUE(runtime.plugins().load(folder.put("hooked")).ok());
  const auto state = runtime.core().snapshot()->state;
  ASSERT_EQ(state->functions.size(), 1u);
  const registry::Hook& f = *state->functions[0];
  EXPECT_EQ(f.group, "plugged_group");
  EXPECT_EQ(f.name, "plugged");
  EXPECT_EQ(f.backend, "hooked");
  EXPECT_EQ(f.signature, "i64(i64)");
  EXPECT_EQ(f.d.priority, 7);
  EXPECT_THAT(f.reasons, ElementsAre("{0} is more than 99"));
  EXPECT_EQ(reinterpret_cast<int64_t (*)(void*, int64_t)>(f.d.function)(f.d.self, 5), 51);
  yard_verdict_t verdict{};
  const auto verify = reinterpret_cast<int32_t (*)(void*, int64_t, yard_verdict_t*)>(f.d.verify);
  EXPECT_EQ(verify(f.d.self, 5, &verdict), YARD_OK);
  EXPECT_EQ(verdict.reason, YARD_REASON_NONE);
  EXPECT_EQ(verify(f.d.self, 500, &verdict), YARD_OK);
  EXPECT_EQ(verdict.reason, YARD_REASON_OWN);
}

}  // namespace
}  // namespace yard::testing
