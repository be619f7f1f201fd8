// SPDX-License-Identifier: Apache-2.0
// A rule file that changes while the program runs: which versions take effect, and which are
// refused and reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <yard/log.h>

#include <atomic>
#include <functional>
#include <thread>

#include "reload_fixture.h"

namespace yard::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using base::eventually;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = ConfigEvent::Kind;

TEST_F(Reload, FollowsTheFile) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_EQ(ran(), 2);
  base::replace(file_, locked("default.c"));
  EXPECT_TRUE(becomes(3));
  base::write_in_place(file_, locked("default.a"));
  EXPECT_TRUE(becomes(1));
  rt_.rules().unwatch();
  base::replace(file_, locked("default.b"));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ran(), 1);
}

TEST_F(Reload, FollowsIncludedFiles) {
  base::replace(folder_ / "more.yaml", "kernel_locks: {step: default.b}\n");
  base::replace(file_, "version: '1.0'\ninclude: more.yaml\n");
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_EQ(ran(), 2);
  base::replace(folder_ / "more.yaml", "kernel_locks: {step: default.c}\n");
  EXPECT_TRUE(becomes(3));
  // A missing include is reported, and read as soon as it exists.
  base::replace(file_, "version: '1.0'\ninclude: [more.yaml, late.yaml]\n");
  ASSERT_TRUE(told(3));
  EXPECT_EQ(events()[2].kind, Kind::kRefused);
  EXPECT_THAT(to_string(events()[2]), HasSubstr("late.yaml"));
  base::replace(folder_ / "late.yaml", "kernel_denies: [default.b]\n");
  ASSERT_TRUE(told(4));
  EXPECT_EQ(events()[3].kind, Kind::kReloaded);
  EXPECT_THAT(rt_.rules().config().kernel_denies, SizeIs(1));
}

TEST_F(Reload, FollowsALinkThatIsSwapped) {
  swap_data(folder_, "..1", "rules.yaml", locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_EQ(ran(), 2);
  swap_data(folder_, "..2", "rules.yaml", locked("default.c"));
  EXPECT_TRUE(becomes(3));
}

TEST_F(Reload, KeepsTheLastValidRulesWhenTheFileIsDeleted) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  fs::remove(file_);
  ASSERT_TRUE(told(2));
  EXPECT_THAT(to_string(events()[1]),
              AllOf(HasSubstr("rules.yaml: refused, version 1 stays in force"),
                    HasSubstr("cannot be opened: No such file")));
  EXPECT_EQ(ran(), 2);
  EXPECT_THAT(rt_.problems(), SizeIs(1));
  base::replace(file_, locked("default.c"));
  EXPECT_TRUE(becomes(3));
  EXPECT_TRUE(eventually([&] { return rt_.problems().empty(); }));
}

// Waits for a thread that sets rules, while its own thread submits rules.
struct WaitingVerifier {
  static inline std::function<void()> act;
  static inline thread_local int t_until =
      -1;  // the number of verifications on this thread before it acts, or negative for never
  static int32_t verify(const yard_query_t*, yard_verdict_t*) {
    if (t_until >= 0 && t_until-- == 0) act();
    return YARD_OK;
  }
};

TEST_F(Reload, AVerifierMayWaitForAThreadThatSetsRules) {
  static constexpr const char* kNothing[] = {nullptr};
  yard_kernel_t k = kernel_of("step", "default.v", 4, 40);
  k.verify = WaitingVerifier::verify, k.verify_reads = kNothing;
  bare_.add(k).or_throw();
  EXPECT_EQ(ran(), 4);
  Config first, second;
  first.kernel_denies = {{"default.a", false, {}}};
  second.kernel_denies = {{"default.b", false, {}}};
  Status other;
  WaitingVerifier::act = [&] { std::thread([&] { other = rt_.rules().set(second); }).join(); };
  WaitingVerifier::t_until = 0;  // in the dry run
  EXPECT_TRUE(rt_.rules().set(first).ok());
  EXPECT_EQ(WaitingVerifier::t_until, -1);
  WaitingVerifier::act = nullptr;
  EXPECT_TRUE(other.ok()) << other.to_string();
  // The other rules took effect first, so these were tried again.
  EXPECT_EQ(rt_.rules().config().kernel_denies, first.kernel_denies);
  const auto history = rt_.rules().history();
  ASSERT_THAT(history, SizeIs(2));
  EXPECT_EQ(history[0].number, 1u);
  EXPECT_EQ(history[1].number, 2u);
  EXPECT_TRUE(rt_.rules().set(second).ok());
}

TEST_F(Reload, LoadsAFileThatIsCreatedLater) {
  const Status s = rt_.rules().watch(file_, quick());
  EXPECT_THAT(s.to_string(), HasSubstr("No such file"));
  EXPECT_EQ(ran(), 1);
  base::replace(file_, locked("default.b"));
  EXPECT_TRUE(becomes(2));
}

TEST_F(Reload, ReportsABadFileOnceWithAllItsErrors) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  const std::string bad =
      "version: '1.0'\nkernel_locks: {step: default.aa}\ndispatch_rules: [{operation: stepp, "
      "kernel: "
      "default.a}]\n";
  base::replace(file_, bad);
  ASSERT_TRUE(told(2));
  EXPECT_EQ(events()[1].kind, Kind::kRefused);
  EXPECT_EQ(events()[1].version, 1u);
  EXPECT_THAT(events()[1].problems, SizeIs(2));
  EXPECT_EQ(ran(), 2);
  EXPECT_THAT(rt_.rules().history(), SizeIs(1));
  // Repeating the bad file is not reported. Another bad file is, and so is a good one.
  base::replace(file_, bad);
  std::this_thread::sleep_for(150ms);
  EXPECT_THAT(events(), SizeIs(2));
  base::replace(file_, "version: '1.0'\nkernel_lock: {}\n");
  ASSERT_TRUE(told(3));
  EXPECT_EQ(events()[2].kind, Kind::kRefused);
  base::replace(file_, locked("default.c"));
  ASSERT_TRUE(told(4));
  EXPECT_EQ(events()[3].kind, Kind::kReloaded);
  EXPECT_EQ(ran(), 3);
}

TEST_F(Reload, LoadsARefusedFileOnceItIsValid) {
  const std::string text =
      "version: '1.0'\ndispatch_rules: [{operation: step, kernel: default.d}]\n";
  base::replace(file_, text);
  EXPECT_FALSE(rt_.rules().watch(file_, quick()).ok());
  bare_.add(kernel_of("step", "default.d", 4)).or_throw();
  base::replace(file_, text);
  EXPECT_TRUE(becomes(4));
}

// LayerZero accepts ids that are not registered, and its calls fail later.
TEST_F(Reload, PeersDefectUnknownKernelIdsPassValidation) {
  for (const char* text :
       {"fallback_chains: {step: [flash_v9]}",
        "dispatch_rules: [{operation: step, kernel: flash_v9}]",
        "static_kernel_map: {step: flash_v9}", "defaults: {fallback_policy: flash_v9}"}) {
    base::replace(file_, std::string("version: '1.0'\n") + text + "\n");
    std::vector<ConfigProblem> problems;
    EXPECT_FALSE(rt_.rules().load(file_, &problems).ok()) << text;
    ASSERT_THAT(problems, SizeIs(1)) << text;
    EXPECT_THAT(to_string(problems[0]), HasSubstr("flash_v9"));
    EXPECT_EQ(ran(), 1);
  }
}

TEST_F(Reload, ADenyOfAKernelThatIsNotRegisteredYetHoldsAfterARestart) {
  base::replace(file_, "version: '1.0'\nkernel_denies: [default.zeta]\n");
  Runtime again(RuntimeSettings{.builtin_backends = false, .environment = false, .config = file_});
  ASSERT_EQ(again.rules().config().kernel_denies.size(), 1u);
  ASSERT_THAT(again.problems(), SizeIs(1));
  EXPECT_FALSE(again.problems()[0].error);
  EXPECT_THAT(again.problems()[0].message,
              HasSubstr("no op has a kernel called 'default.zeta' yet"));
  Changes c;
  c.add_backend(backend_of("test")).add_op(op_of(kStep));
  c.add_kernel(kernel_of("step", "default.a", 1, 30));
  c.add_kernel(kernel_of("step", "default.zeta", 9, 900));
  again.apply(std::move(c)).or_throw();
  const Explanation e = again.explain("step(f32[4])").value();
  EXPECT_EQ(e.selected, "default.a");
  EXPECT_EQ(e.candidates.back().reason, "denied_kernel");
}

TEST_F(Reload, AFileThatIsRefusedAtTheStartIsWatchedUntilItIsCorrected) {
  const std::string hot = "settings: {mode: hot_reload, reload: {debounce: 20ms}}\n";
  const std::pair<const char*, std::string> starts[] = {
      {"version: '1.0'\nkernel_locks: {step: [default.a\n", hot},
      {"version: '1.0'\nkernel_lock: {}\n", hot},
      {"version: '1.0'\nkernel_lock: {}\n", ""},
      {"", ""}};
  for (const auto& [refused, settings] : starts) {
    std::filesystem::remove(file_);
    if (*refused != '\0') base::replace(file_, refused + settings);
    Runtime started(RuntimeSettings{.environment = false, .config = file_});
    EXPECT_THAT(started.problems(), SizeIs(1)) << refused;
    EXPECT_THAT(started.rules().history(), IsEmpty());
    const auto versions = [&] { return started.rules().history().size(); };
    base::replace(file_, "version: '1.0'\nkernel_denies: [default.simd]\n" + settings);
    EXPECT_TRUE(eventually([&] { return versions() == 1; })) << refused << settings;
    // The version is published first. The watcher's thread updates the problems afterwards.
    EXPECT_TRUE(eventually([&] { return started.problems().empty(); })) << refused << settings;
    // From now on the file decides whether it is watched.
    base::replace(file_, "version: '1.0'\nkernel_denies: [default.simd]\nscore: []\n" + settings);
    if (settings.empty())
      std::this_thread::sleep_for(200ms);
    else
      eventually([&] { return versions() == 2; });
    EXPECT_EQ(versions(), settings.empty() ? 1u : 2u) << refused;
  }
}

TEST_F(Reload, ARefusedFileThatAsksForItIsWatched) {
  const std::string hot = "settings: {mode: hot_reload, reload: {debounce: 20ms}}\n";
  base::replace(file_, locked("default.aa", hot));
  EXPECT_FALSE(rt_.rules().load(file_).ok());
  EXPECT_EQ(ran(), 1);
  base::replace(file_, locked("default.b", hot));
  EXPECT_TRUE(becomes(2));
}

TEST_F(Reload, WhatHappensToAWatchedFileIsLoggedOnceAtTheDefaultLevel) {
  std::mutex lock;
  std::vector<std::string> logged;
  const auto lines = [&] {
    const std::lock_guard hold(lock);
    return logged;
  };
  base::replace(file_, locked("default.a"));
  set_log_sink([&](const LogMessage& m) {
    const std::lock_guard hold(lock);
    if (m.logger == "policy") logged.emplace_back(m.text);
  });
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_THAT(lines(), IsEmpty());  // the program made this change itself
  base::replace(file_, locked("default.b"));
  EXPECT_TRUE(base::eventually([&] { return lines().size() == 1; }));
  base::replace(file_, locked("default.bb"));
  EXPECT_TRUE(base::eventually([&] { return lines().size() == 3; }));
  base::replace(file_, locked("default.bb"));
  std::this_thread::sleep_for(100ms);
  set_log_sink({});
  EXPECT_THAT(logged, ElementsAre(HasSubstr("rules.yaml: reloaded, version 2 is in force"),
                                  HasSubstr("did you mean 'default.b'?"),
                                  HasSubstr("rules.yaml: refused, version 2 stays in force")));
}

TEST_F(Reload, RefusalsOfSetConfigNameTheirSource) {
  EXPECT_EQ(ran(), 1);
  Config none;
  none.kernel_denies = {{"default.*", false, {}}};
  Config wrong;
  wrong.kernel_locks["step"] = {"default.aa", false, {}};
  for (const Config& c : {none, wrong}) {
    std::vector<ConfigProblem> problems;
    const Status s = rt_.rules().set(c, &problems);
    ASSERT_FALSE(problems.empty());
    for (const ConfigProblem& p : problems) EXPECT_EQ(p.file, "Rules::set");
    EXPECT_THAT(s.message(), ::testing::StartsWith("Rules::set: error: "));
  }
}

TEST_F(Reload, AWatchWithTimesBelowTheMinimumIsAnError) {
  base::replace(file_, locked("default.b"));
  EXPECT_THAT(rt_.rules().watch(file_, {5ms, 10ms}).message(),
              HasSubstr("debounce: expected at least 20 ms, got 5 ms"));
  EXPECT_THAT(rt_.rules().watch(file_, {20ms, 9ms}).message(),
              HasSubstr("poll_interval: expected at least 10 ms, got 9 ms"));
  EXPECT_EQ(ran(), 1);
  Config c;
  c.settings.reload.debounce = 1ms;
  EXPECT_THAT(rt_.rules().set(c).message(), HasSubstr("settings.reload.debounce: expected a time"));
}

// LayerZero loses writes while its debounce timer runs.
TEST_F(Reload, PeersDefectTheDebounceLosesTheLastWrite) {
  base::replace(file_, locked("default.a"));
  WatchSettings settings = quick();
  settings.debounce = 60ms;
  rt_.rules().watch(file_, settings).or_throw();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 8; ++i) {
      base::replace(file_, locked(i % 2 ? "default.a" : "default.b", "#" + std::to_string(i)));
      std::this_thread::sleep_for(std::chrono::milliseconds(10 * (i % 3)));
    }
    base::write_in_place(file_, locked(round % 2 ? "default.b" : "default.c"));
    ASSERT_TRUE(eventually(
        [&] { return rt_.rules().history().back().sha256 == read_config(file_).sha256; }));
    std::this_thread::sleep_for(100ms);
    ASSERT_EQ(ran(), round % 2 ? 2 : 3);
  }
}

std::atomic<bool> g_block{false}, g_inside{false};
int32_t block(yard_call_t*, const yard_value_t*, uint32_t) {
  g_inside = true;
  while (g_block) std::this_thread::sleep_for(1ms);
  return YARD_OK;
}

// LayerZero always waits for calls until its grace period is over.
TEST_F(Reload, PeersDefectReloadWaitsOutItsGracePeriodUnderLoad) {
  yard_kernel_t slow = kernel_of("step", "default.slow", 9, 90);
  slow.run = block;
  bare_.add(slow).or_throw();
  g_block = true;
  std::thread caller([&] { EXPECT_NE(ran(), -1); });
  ASSERT_TRUE(eventually([] { return g_inside.load(); }));
  // The call outlasts the reloads.
  base::replace(file_, locked("default.a"));
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_EQ(ran(), 1);
  base::replace(file_, locked("default.b"));
  EXPECT_TRUE(becomes(2));
  EXPECT_TRUE(rt_.rules().roll_back(1).ok());
  EXPECT_EQ(ran(), 1);
  EXPECT_TRUE(g_block);
  g_block = false;
  caller.join();
}

TEST_F(Reload, ObeysTheSettingsOfTheFile) {
  base::replace(file_,
                locked("default.b", "settings: {reload: {debounce: 20ms, poll_interval: 10ms}}\n"));
  // Without the settings in the file a reload would take an hour.
  rt_.rules().watch(file_, {1h, 1h}).or_throw();
  base::replace(file_,
                locked("default.c", "settings: {reload: {debounce: 20ms, poll_interval: 10ms}}\n"));
  EXPECT_TRUE(becomes(3));
  base::replace(file_, locked("default.a"));
  EXPECT_TRUE(becomes(1));
}

TEST_F(Reload, AFileInModeHotReloadIsWatched) {
  const std::string hot = "settings: {mode: hot_reload, reload: {debounce: 20ms}}\n";
  base::replace(file_, locked("default.b", hot));
  rt_.rules().load(file_).or_throw();
  EXPECT_EQ(ran(), 2);
  base::replace(file_, locked("default.c", hot));
  EXPECT_TRUE(becomes(3));
  rt_.rules().load("").or_throw();
  base::replace(file_, locked("default.b", hot));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ran(), 1);
}

TEST_F(Reload, AFileThatLeavesHotReloadIsNotWatched) {
  const std::string hot = "settings: {mode: hot_reload, reload: {debounce: 20ms}}\n";
  base::replace(file_, locked("default.b", hot));
  rt_.rules().load(file_).or_throw();
  base::replace(file_, locked("default.c", "settings: {mode: config}\n"));
  EXPECT_TRUE(becomes(3));
  base::replace(file_, locked("default.a", hot));
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(ran(), 3);
  // Loading the file again restores it.
  rt_.rules().load(file_).or_throw();
  EXPECT_EQ(ran(), 1);
  base::replace(file_, locked("default.b", hot));
  EXPECT_TRUE(becomes(2));
  // Loading another file stops watching this one.
  base::replace(folder_ / "other.yaml", locked("default.c"));
  rt_.rules().load(folder_ / "other.yaml").or_throw();
  base::replace(file_, locked("default.a", hot));
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(ran(), 3);
}

TEST_F(Reload, FilesWatchedByTheProgramStayWatchedInAnyMode) {
  base::replace(file_, locked("default.b", "settings: {mode: hot_reload}\n"));
  rt_.rules().watch(file_, quick()).or_throw();
  rt_.rules().load(file_).or_throw();
  base::replace(file_, locked("default.c", "settings: {mode: config}\n"));
  EXPECT_TRUE(becomes(3));
  base::replace(file_, locked("default.a"));
  EXPECT_TRUE(becomes(1));
}

TEST_F(Reload, ARefusalIsLoggedInFullEachTime) {
  std::mutex lock;
  std::vector<std::string> logged;
  set_log_sink([&](const LogMessage& m) {
    const std::lock_guard hold(lock);
    if (m.logger == "policy") logged.emplace_back(m.text);
  });
  const std::string bad = "version: '1.0'\nkernel_lock: {}\n";
  for (int i = 0; i < 3; ++i) {
    base::replace(file_, bad);
    EXPECT_FALSE(rt_.rules().load(file_).ok());
    const std::lock_guard hold(lock);
    ASSERT_THAT(logged, SizeIs(2)) << i;
    EXPECT_THAT(logged[0], HasSubstr("kernel_lock"));
    EXPECT_THAT(logged[1], HasSubstr("refused"));
    logged.clear();
  }
  set_log_sink({});
}

TEST_F(Reload, AForkedChildContinuesWithoutTheThreads) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  ASSERT_TRUE(told(1));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    bool ok = ran() == 2 && rt_.rules().history().size() == 1;
    base::replace(file_, locked("default.c"));
    ok = ok && rt_.rules().watch(file_, quick()).ok() && becomes(3);
    base::replace(file_, locked("default.a"));
    ok = ok && becomes(1) && rt_.rules().roll_back(1).ok() && ran() == 2;
    rt_.rules().unwatch();
    ::_exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(becomes(1));
}

TEST(ReloadLife, ARuntimeCanEndWhileItWatches) {
  const base::TempFolder folder;
  base::replace(folder / "r.yaml", "version: '1.0'\n");
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> calls{0};
    Bare bare(kStep);
    bare.runtime.rules().on_change([&](const ConfigEvent&) { ++calls; });
    bare.runtime.rules().watch(folder / "r.yaml", {20ms, 10ms}).or_throw();
    base::replace(folder / "r.yaml", "version: '1.0'\n#" + std::to_string(i) + "\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * (i % 8)));
  }
}

}  // namespace
}  // namespace yard::testing
