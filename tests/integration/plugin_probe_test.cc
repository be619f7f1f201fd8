// SPDX-License-Identifier: Apache-2.0
// Probes: a library that would crash the process is detected in a separate one, and refused with what
// happened there.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <yard/abi.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Reason = PluginReason;

// Sanitizers answer signals themselves, with an exit code.
constexpr bool kSanitized = YARD_SANITIZER_[0] != 'n';

RuntimeSettings probing(const Folder& state, PluginProbe probe = PluginProbe::kAlways) {
  RuntimeSettings s = alone();
  s.plugins.probe = probe;
  s.plugins.state_directory = state.path();
  s.plugins.probe_seconds = kSanitized ? 10 : 4;
  s.plugins.probe_memory = uint64_t{1} << 30;
  return s;
}

struct Bad {
  const char* plugin;
  Reason reason;
  const char* how;    // where there is no sanitizer
  const char* where;  // in all cases
};

const Bad kBad[] = {
    {"load_crash", Reason::kProbeFailed, "died of SIGSEGV", "while it was opened"},
    {"load_null", Reason::kProbeFailed, "died of SIGSEGV", "while it was opened"},
    {"load_stop_short", Reason::kProbeFailed, "died of SIGABRT", "while it was opened"},
    {"load_hang", Reason::kProbeFailed, "still running after 2 s", "while it was opened"},
    {"load_leave", Reason::kProbeFailed, "exit code 3", "while it was opened"},
    {"load_leave_well", Reason::kProbeFailed, "exit code 0", "while it was opened"},
    {"query_crash", Reason::kProbeFailed, "died of SIGSEGV", "in its query"},
    {"query_null", Reason::kProbeFailed, "died of SIGSEGV", "in its query"},
    {"query_divide", Reason::kProbeFailed, "died of SIGFPE", "in its query"},
    {"query_illegal", Reason::kProbeFailed, "died of SIGILL", "in its query"},
    {"query_stop_short", Reason::kProbeFailed, "died of SIGABRT", "in its query"},
    {"query_kill_itself", Reason::kProbeFailed, "died of SIGKILL", "in its query"},
    {"query_hang", Reason::kProbeFailed, "still running after 2 s", "in its query"},
    {"query_spin", Reason::kProbeFailed, "still running after 2 s", "in its query"},
    {"query_leave", Reason::kProbeFailed, "exit code 3", "in its query"},
    {"query_leave_well", Reason::kProbeFailed, "exit code 0", "in its query"},
    {"query_recurse", Reason::kProbeFailed, "died of SIGSEGV", "in its query"},
    {"query_fall_silent", Reason::kProbeFailed, "exit code 0", "in its query"},
    {"query_leave_a_child", Reason::kProbeFailed, "died of SIGSEGV", "in its query"},
    {"start_crash", Reason::kProbeFailed, "died of SIGSEGV", "in its start"},
    {"start_hang", Reason::kProbeFailed, "still running after 2 s", "in its start"},
    {"start_leave", Reason::kProbeFailed, "exit code 3", "in its start"},
    {"start_throws", Reason::kStartFailed, "", "thrown through C"},
    {"run_crash", Reason::kProbeFailed, "died of SIGSEGV",
     "kernel 'default.behave' of op 'behave'"},
    {"run_null", Reason::kProbeFailed, "died of SIGSEGV", "on behave(i64["},
    {"run_divide", Reason::kProbeFailed, "died of SIGFPE", "on behave(i64["},
    {"run_stop_short", Reason::kProbeFailed, "died of SIGABRT", "on behave(i64["},
    {"run_hang", Reason::kProbeFailed, "still running after 2 s", "on behave(i64["},
    {"run_leave", Reason::kProbeFailed, "exit code 3", "on behave(i64["},
    {"run_leave_well", Reason::kProbeFailed, "exit code 0", "on behave(i64["},
    {"run_recurse", Reason::kProbeFailed, "died of SIGSEGV", "on behave(i64["},
    {"run_leave_a_child", Reason::kProbeFailed, "died of SIGSEGV", "on behave(i64["},
    {"run_write_behind", Reason::kProbeFailed, "", "after its last element"},
    {"run_write_far_behind", Reason::kProbeFailed, "", "100 bytes after its last element"},
    {"run_change_float_state", Reason::kProbeFailed, "",
     "it changed the floating-point control state of its thread in kernel 'default.behave'"},
    {"stop_crash", Reason::kProbeFailed, "died of SIGSEGV", "stopped and closed"},
    {"stop_hang", Reason::kProbeFailed, "still running after 2 s", "stopped and closed"},
    {"close_crash", Reason::kProbeFailed, "died of SIGSEGV", "stopped and closed"},
    {"close_leave", Reason::kProbeFailed, "exit code 3", "stopped and closed"},
    {"start_leave_a_key", Reason::kProbeFailed, "died of SIGSEGV", "a thread that had called it"},
#if !defined(YARD_UNDER_ASAN) && !defined(YARD_UNDER_TSAN)
    {"start_leave_a_thread", Reason::kProbeFailed, "", "in a thread that it left running"},
    {"run_leave_a_thread", Reason::kProbeFailed, "", "in a thread that it left running"},
    {"run_free_twice", Reason::kProbeFailed, "double free", "on behave(i64["},
    {"run_eat_memory", Reason::kProbeFailed, "died of SIGABRT", "on behave(i64["},
#endif
};

class Probed : public ::testing::TestWithParam<Bad> {};

TEST_P(Probed, IsRefusedWithWhatHappenedAndWhere) {
  const Bad& bad = GetParam();
  Folder folder, state;
  const std::string path = folder.put(std::string("behave_") + bad.plugin);
  RuntimeSettings settings = probing(state);
  // Long enough to get where it hangs.
  if (std::string_view(bad.how).starts_with("still running"))
    settings.plugins.probe_seconds = kSanitized ? 4 : 2;
  Runtime runtime(settings);
  const Status s = runtime.plugins().load(path);
  ASSERT_FALSE(s.ok());
  const PluginInfo info = info_of(runtime, path);
  EXPECT_STREQ(to_string(info.reason), to_string(bad.reason)) << info.detail;
  EXPECT_THAT(info.detail, HasSubstr(kSanitized ? "" : bad.how));
  EXPECT_THAT(info.detail, HasSubstr(bad.where));
  const std::string maps = read_file("/proc/self/maps");
  EXPECT_EQ(maps.find(folder.path()), maps.npos) << "it was opened here";
}
INSTANTIATE_TEST_SUITE_P(All, Probed, ::testing::ValuesIn(kBad),
                         [](const auto& p) { return std::string(p.param.plugin); });

class Probe : public ::testing::Test {
 protected:
  Folder folder_, state_;
};

TEST_F(Probe, AGoodPluginLoadsAndWorks) {
  Runtime runtime(probing(state_));
  ASSERT_TRUE(runtime.plugins().load(folder_.put("behave")).ok());
  EXPECT_EQ(ask(runtime, "behave"), 0);
  const ProbeReport report = runtime.plugins().probe(folder_.put("answer"));
  EXPECT_TRUE(report.passed()) << report.detail;
  EXPECT_EQ(report.kernels, 1u);
  EXPECT_GT(report.runs, 2u);
  EXPECT_GT(report.seconds, 0);
  EXPECT_EQ(report.info.name, "answer");
  EXPECT_EQ(report.info.probed, true);
}

TEST_F(Probe, ErrorsOfAKernelDoNotFailAProbe) {
  Runtime runtime(probing(state_));
  EXPECT_TRUE(runtime.plugins().probe(folder_.put("behave_run_throws")).passed());
  EXPECT_TRUE(runtime.plugins().probe(folder_.put("behave_run_be_wrong")).passed());
}

TEST_F(Probe, ChangedProbesAFileOnceAndRecordsTheDigest) {
  const std::string path = folder_.put("behave_query_crash");
  const RuntimeSettings settings = probing(state_, PluginProbe::kChanged);
  std::string first;
  {
    Runtime runtime(settings);
    ASSERT_FALSE(runtime.plugins().load(path).ok());
    first = info_of(runtime, path).detail;
    EXPECT_THAT(first, HasSubstr("in a separate process"));
  }
  RuntimeSettings without = settings;
  without.plugins.probe_program = "/no/such/program";  // would be needed if it were tried again
  Runtime runtime(without);
  ASSERT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, Reason::kProbeFailed);
  EXPECT_THAT(info_of(runtime, path).detail,
              AllOf(HasSubstr("when it was probed before"), HasSubstr("in its query"),
                    HasSubstr("`yard plugin probe " + path + "`")));
  // Other bytes are another matter.
  folder_.put("behave", "behave_query_crash");
  ASSERT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, Reason::kNotProbed);
  Runtime able(settings);
  ASSERT_TRUE(able.plugins().load(path).ok());
  Runtime later(without);
  EXPECT_TRUE(later.plugins().load(path).ok()) << "its pass is remembered";
}

TEST_F(Probe, WithoutItsProgramPluginsAreRefused) {
  const std::string path = folder_.put("answer");
  for (const char* program : {"/no/such/program", "relative", "/dev/null"}) {
    RuntimeSettings settings = probing(state_);
    settings.plugins.probe_program = program;
    Runtime runtime(settings);
    EXPECT_FALSE(runtime.plugins().load(path).ok());
    EXPECT_EQ(info_of(runtime, path).reason, Reason::kNotProbed);
    EXPECT_THAT(info_of(runtime, path).detail,
                AllOf(HasSubstr(program), HasSubstr("cannot be used")));
  }
  RuntimeSettings settings = probing(state_);
  settings.plugins.probe_program = "/bin/true";  // ends well and has done nothing
  Runtime runtime(settings);
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_THAT(info_of(runtime, path).detail, HasSubstr("exited before the probe started"));
}

TEST_F(Probe, AProgramThatOthersCanWriteIsNotRun) {
  const std::string program = folder_.put_bytes("#!/bin/sh\nexit 0\n", "probe");
  ASSERT_EQ(::chmod(program.c_str(), 0777), 0);
  RuntimeSettings settings = probing(state_);
  settings.plugins.probe_program = program;
  Runtime runtime(settings);
  const ProbeReport report = runtime.plugins().probe(folder_.put("answer"));
  EXPECT_EQ(report.reason, Reason::kNotProbed);
  EXPECT_THAT(report.detail, HasSubstr("can be written by everybody"));
}

TEST_F(Probe, RefusalsByManifestNeedNoProbe) {
  Runtime runtime(probing(state_));
  const ProbeReport report = runtime.plugins().probe(folder_.put("abi_too_new"));
  EXPECT_EQ(report.reason, Reason::kAbiTooNew);
  EXPECT_EQ(report.seconds, 0);
  EXPECT_EQ(runtime.plugins().probe("relative.so").reason, Reason::kRelativePath);
}

TEST_F(Probe, WhatALoadWouldRefuseHasTheSameReason) {
  Runtime runtime(probing(state_));
  const ProbeReport report = runtime.plugins().probe(folder_.put("query_bad_utf8"));
  EXPECT_EQ(report.reason, Reason::kBadDescriptor);
  EXPECT_THAT(report.detail, HasSubstr("UTF-8"));
  EXPECT_FALSE(report.info.probed) << "a missing library may be there tomorrow";
}

TEST_F(Probe, KernelsForAnotherPluginsOpAreProbedWithThatPlugin) {
  folder_.put("answer"), folder_.put("kernel_only");
  RuntimeSettings settings = probing(state_);
  settings.plugins.paths = {folder_.path()};
  Runtime runtime(settings);
  EXPECT_EQ(ask(runtime), 3);
  EXPECT_EQ(info_of(runtime, "helper").state, PluginState::kLoaded);
}

TEST_F(Probe, LockFilesAreIgnored) {
  const std::string path = folder_.put("answer");
  folder_.put_bytes("", "yard.lock");  // lets nothing in
  Runtime runtime(probing(state_));
  EXPECT_TRUE(runtime.plugins().probe(path).passed());
}

TEST_F(Probe, WorksWithoutAResultsFile) {
  RuntimeSettings settings = probing(state_, PluginProbe::kChanged);
  settings.plugins.state_directory = "/proc/nowhere";
  Runtime runtime(settings);
  EXPECT_TRUE(runtime.plugins().load(folder_.put("answer")).ok());
  EXPECT_FALSE(runtime.plugins().inspect(folder_.file("answer.so")).probed);
}

TEST_F(Probe, WorksInAProgramThatIgnoresItsChildren) {
  auto* before = std::signal(SIGCHLD, SIG_IGN);
  Runtime runtime(probing(state_));
  EXPECT_TRUE(runtime.plugins().probe(folder_.put("answer")).passed());
  EXPECT_EQ(runtime.plugins().probe(folder_.put("behave_query_crash")).reason,
            Reason::kProbeFailed);
  std::signal(SIGCHLD, before);
}

TEST_F(Probe, ProcessesStartedByTheLibraryEndWithTheProbe) {
  const std::string path = folder_.put("behave_query_leave_a_child");
  Runtime runtime(probing(state_));
  EXPECT_FALSE(runtime.plugins().probe(path).passed());
  // The child of the child, if it lived, would have the file mapped.
  for (int left = 100; left > 0; --left) {
    bool alive = false;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      try {
        const std::string maps = read_file(entry.path().string() + "/maps");
        alive |= maps.find(folder_.path()) != maps.npos;
      } catch (const std::exception&) {
        // The process ended while it was read.
      }
    }
    if (!alive) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  FAIL() << "something still runs " << path;
}

TEST_F(Probe, ManyThreadsMayProbe) {
  const std::string good = folder_.put("answer"), bad = folder_.put("behave_query_crash");
  Runtime runtime(probing(state_));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      EXPECT_EQ(runtime.plugins().probe(i % 2 == 0 ? good : bad).passed(), i % 2 == 0);
    });
  for (std::thread& t : threads) t.join();
}

class ProbeEnvironment : public Probe {
 protected:
  ~ProbeEnvironment() override { ::unsetenv("YARD_PLUGIN_PROBE"); }
  RuntimeSettings settings() const {
    RuntimeSettings s = probing(state_);
    s.environment = true, s.plugins.probe.reset();
    return s;
  }
};

TEST_F(ProbeEnvironment, SetsWhetherPluginsAreProbedUnlessTheProgramDoes) {
  const std::string path = folder_.put("behave_run_write_behind");
  ::setenv("YARD_PLUGIN_PROBE", "Changed", 1);
  Runtime runtime(settings());
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, Reason::kProbeFailed);
  RuntimeSettings stronger = settings();
  stronger.plugins.probe = PluginProbe::kNever;
  Runtime other(stronger);
  EXPECT_TRUE(other.plugins().load(path).ok());
  ::unsetenv("YARD_PLUGIN_PROBE");
  ASSERT_TRUE(runtime.reload_environment().ok());
  EXPECT_TRUE(runtime.plugins().load(path).ok()) << "never is the default";
}

TEST_F(ProbeEnvironment, AnInvalidWordIsReported) {
  ::setenv("YARD_PLUGIN_PROBE", "allways", 1);
  Runtime runtime(settings());
  ASSERT_EQ(runtime.problems().size(), 1u);
  EXPECT_EQ(runtime.problems()[0].where, "YARD_PLUGIN_PROBE");
  EXPECT_THAT(runtime.problems()[0].message, HasSubstr("did you mean 'always'?"));
}

// ---- Only verified ones -----------------------------------------------------------------------

TEST_F(Probe, OnlyVerifiedPluginsLoadWhereThatIsRequired) {
  const std::string path = folder_.put("answer");
  RuntimeSettings settings = alone({folder_.path()});
  settings.plugins.require_verified = true, settings.plugins.state_directory = state_.path();
  Runtime runtime(settings);
  EXPECT_EQ(ask(runtime), -1);
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kNotVerified);
  EXPECT_THAT(info_of(runtime, "answer").detail, HasSubstr("`yard verify " + path + "`"));
  const std::string digest = runtime.plugins().inspect(path).sha256;
  EXPECT_FALSE(runtime.plugins().remember_verified("x").ok());
  ASSERT_TRUE(runtime.plugins().remember_verified(digest).ok());
  EXPECT_TRUE(runtime.plugins().inspect(path).verified);
  EXPECT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime), 1);
  // Another build is another plugin.
  Runtime later(settings);
  folder_.put("answer_v2", "answer");
  EXPECT_FALSE(later.plugins().load("answer").ok());
  EXPECT_EQ(info_of(later, path).reason, Reason::kNotVerified);
  // And a failure takes it back.
  folder_.put("answer");
  ASSERT_TRUE(later.plugins().remember_verified(digest, false).ok());
  EXPECT_FALSE(later.plugins().load(path).ok());
  EXPECT_THAT(info_of(later, path).detail, HasSubstr("failed on"));
}

TEST_F(Probe, AResultsFileThatOthersCanWriteIsIgnored) {
  const std::string path = folder_.put("answer");
  RuntimeSettings settings = alone();
  settings.plugins.require_verified = true, settings.plugins.state_directory = state_.path();
  Runtime runtime(settings);
  ASSERT_TRUE(runtime.plugins().remember_verified(runtime.plugins().inspect(path).sha256).ok());
  ASSERT_EQ(::chmod(state_.path().c_str(), 0777), 0);
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, Reason::kNotVerified);
  EXPECT_THAT(info_of(runtime, path).detail, HasSubstr("is not trusted"));
}

}  // namespace
}  // namespace yard::testing
