// SPDX-License-Identifier: Apache-2.0
// Defects of specialization in FlagTree, each with a test that it does not exist here.
#include <gmock/gmock.h>
#include <yard/log.h>

#include <optional>

#include "plugin_files.h"

#include "../plugins/hooks.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "`or` drops falsy results": spec(...) or default(...) ran both for a result of zero.
TEST(PeersHooks, OrDropsFalsyResults) {
  Runtime runtime(alone());
  const Hook<int64_t()> zero(runtime, "zero");
  const Hook<std::optional<int>()> nothing(runtime, "nothing");
  Hooks hooks = runtime.hooks();
  HookSet set("acme");
  set.add(zero, [] { return int64_t{0}; }).add(nothing, [] { return std::optional<int>(); });
  ASSERT_TRUE(hooks.add(set).ok());
  ASSERT_TRUE(hooks.activate("acme").ok());
  EXPECT_EQ(call_or(zero, [] { return int64_t{1}; }), 0);
  EXPECT_EQ(call_or(nothing, [] { return std::optional<int>(1); }), std::nullopt);
}

// "The default is evaluated first, so side effects happen twice."
TEST(PeersHooks, TheDefaultIsEvaluatedFirst) {
  Runtime runtime(alone());
  std::vector<std::string> emitted;  // what a builder would have been told
  const Hook<int(int)> atomic_add(runtime, "atomic_add_int64");
  const auto build = [&](int value) {
    return call_or(
        atomic_add,
        [&] {
          emitted.push_back("default");
          return value;
        },
        value);
  };
  build(1);
  EXPECT_THAT(emitted, ElementsAre("default"));
  HookSet set("acme");
  set.add(atomic_add, [&emitted](int value) {
    emitted.push_back("acme");
    return value;
  });
  ASSERT_TRUE(runtime.hooks().add(set).ok());
  ASSERT_TRUE(runtime.hooks().activate("acme").ok());
  build(1);
  EXPECT_THAT(emitted, ElementsAre("default", "acme"));
}

// "Hooks called but never defined, and defined but never called, go unnoticed."
TEST(PeersHooks, CalledAndNeverDefinedOrDefinedAndNeverCalledGoesUnnoticed) {
  Runtime runtime(alone());
  const Hook<int()> called(runtime, "matmul_kernel");
  HookSet set("acme");
  set.add<int()>("matmul_kernl", [] { return 1; });
  ASSERT_TRUE(runtime.hooks().add(set).ok());
  EXPECT_THAT(runtime.hooks().list().unprovided(), Contains("matmul_kernel"));
  EXPECT_THAT(runtime.hooks().list().undeclared(), ElementsAre("matmul_kernl"));
  std::vector<std::string> logged;
  set_log_sink([&](const LogMessage& m) { logged.emplace_back(m.text); });
  EXPECT_TRUE(runtime.hooks().activate("acme").ok());
  set_log_sink({});
  EXPECT_THAT(logged, ElementsAre(AllOf(HasSubstr("not declared: 'matmul_kernl'"),
                                        HasSubstr("did you mean 'matmul_kernel'?"))));
}

// "Use before a backend is active fails": at the top of a file, while it is being imported.
Hook<int(int)> g_early{"tests.early"};
const auto g_kernel = choose(g_early, [](int x) { return x + 1; });
const int g_early_result = call_or(
    g_early, [] { return 7; }, 1);

TEST(PeersHooks, UseBeforeABackendIsActiveFails) {
  EXPECT_EQ(g_early_result, 7);
  EXPECT_EQ(g_kernel(1), 2);
  Hooks hooks = Runtime::shared().hooks();
  ASSERT_TRUE(hooks.add(HookSet("early_bird").add(g_early, [](int x) { return 100 * x; })).ok());
  ASSERT_TRUE(hooks.activate("early_bird").ok());
  EXPECT_EQ(g_kernel(1), 100);
  ASSERT_TRUE(hooks.remove("early_bird").ok());
  EXPECT_EQ(g_kernel(1), 2);
}

// "Macros change class layouts against prebuilt libraries with no check": the layout is part of the signature.
TEST(PeersHooks, MacrosChangeClassLayoutsWithNoCheck) {
  Folder folder;
  Runtime runtime(alone());
  const Hook<int64_t(const Target&, int64_t)> described(runtime, "described");
  ASSERT_TRUE(runtime.plugins().load(folder.put("hooked_target")).ok());
  ASSERT_TRUE(runtime.hooks().activate("hooked").ok());
  EXPECT_EQ(call_or(
                described, [] { return int64_t{0}; }, Target{4}, 3),
            12);
  ASSERT_TRUE(runtime.plugins().unload("hooked").value().wait().ok());
  ASSERT_TRUE(runtime.plugins().forget("hooked").ok());

  const Status s = runtime.plugins().load(folder.put("hooked_wider"));
  EXPECT_EQ(info_of(runtime, folder.file("hooked_wider.so")).reason, PluginReason::kConflict);
  EXPECT_THAT(s.to_string(), AllOf(HasSubstr("yard::testing::Target{8:8}"),
                                   HasSubstr("yard::testing::Target{16:8}")));
  EXPECT_EQ(call_or(
                described, [] { return int64_t{-1}; }, Target{4}, 3),
            -1);
}

}  // namespace
}  // namespace yard::testing
