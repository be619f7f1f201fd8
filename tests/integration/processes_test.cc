// SPDX-License-Identifier: Apache-2.0
// Other processes: started programs inherit none of the runtime's files, forked children keep
// watching and recording, and tickets of the parent do not block them. See also fork_test.cc.
#include <dirent.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/log.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/testing_files.h"
#include "base/testing_fork.h"
#include "fault.h"
#include "plugin_files.h"
#include "testing.h"

extern char** environ;

namespace yard::testing {
namespace {

using base::eventually;
using base::true_in_child;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Op<void(Out, In, int)> copy{"copy"};

// ---- Starting programs ----

enum class Way { kVfork, kSpawn, kFork, kForkAndCall };

char g_ls[] = "ls", g_l[] = "-l", g_fds[] = "/proc/self/fd", g_true[] = "true";
char* const g_list_files[] = {g_ls, g_l, g_fds, nullptr};
char* const g_nothing[] = {g_true, nullptr};

// A child of vfork may do nothing else.
[[noreturn]] void become(int out, char* const* words) {
  ::dup2(out, 1);
  ::execvp(words[0], words);
  ::_exit(127);
}

pid_t start(Way way, int out, char* const* words, const std::function<void()>& first) {
  pid_t child = -1;
  switch (way) {
    case Way::kVfork:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
      child = ::vfork();
#pragma GCC diagnostic pop
      if (child == 0) become(out, words);
      return child;
    case Way::kSpawn: {
      posix_spawn_file_actions_t actions;
      ::posix_spawn_file_actions_init(&actions);
      ::posix_spawn_file_actions_adddup2(&actions, out, 1);
      const int error = ::posix_spawnp(&child, words[0], &actions, nullptr, words, environ);
      ::posix_spawn_file_actions_destroy(&actions);
      return error == 0 ? child : -1;
    }
    case Way::kFork:
    case Way::kForkAndCall:
      child = ::fork();
      if (child != 0) return child;
      ::alarm(60);
      if (way == Way::kForkAndCall) first();
      become(out, words);
  }
  return -1;
}

// Returns the output of the program, or "failed".
std::string said_by(Way way, char* const* words, const std::function<void()>& first = {}) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "failed";
  const pid_t child = start(way, ends[1], words, first);
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = -1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return "failed";
  return text;
}

// Returns the files that a program started in this way has open, without the numbers of pipes and
// processes.
std::multiset<std::string> files_of(Way way, const std::function<void()>& first = {}) {
  std::multiset<std::string> files;
  const std::string text = said_by(way, g_list_files, first);
  for (size_t at = 0; (at = text.find(" -> ", at)) != std::string::npos;) {
    const size_t end = text.find('\n', at);
    const std::string target = text.substr(at + 4, end - at - 4);
    files.insert(target.substr(0, target.find_first_of("0123456789")));
    at = end;
  }
  if (files.empty()) files.insert(text);
  return files;
}

size_t threads_here() {
  size_t count = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* e = ::readdir(tasks)) count += e->d_name[0] != '.';
  ::closedir(tasks);
  return count;
}

// ---- A runtime with everything that has files or threads ----

class Processes : public ::testing::Test {
 protected:
  Processes() : rules_(folder_ / "rules.yaml"), record_(folder_ / "calls.txt") {
    bare_.add(kernel_of("copy", "default.a", 1, 20)).or_throw();
    bare_.add(kernel_of("copy", "default.b", 2, 10)).or_throw();
    say("default.a");
  }
  ~Processes() override { runtime().rules().unwatch(); }

  Runtime& runtime() { return bare_.runtime; }
  void say(const std::string& kernel) {
    base::replace(rules_, "version: '1.0'\nkernel_locks: {copy: " + kernel + "}\n");
  }
  void use_everything() {
    runtime().rules().watch(rules_, {milliseconds(20), milliseconds(10)}).or_throw();
    runtime().recording().to(record_).or_throw();
    runtime().plugins().load(plugins_.put("answer")).or_throw();
    ASSERT_EQ(ran(), 1);
    ASSERT_EQ(ask(runtime()), 1);
  }
  intptr_t ran() {
    float to[4] = {}, from[4] = {};
    t_ran = 0;
    const Status s =
        copy.on(runtime())(TensorView(to, DType::f32, {4}), TensorView(from, DType::f32, {4}), 0);
    return s.ok() ? t_ran : -1;
  }
  Ticket remove(const char* id) {
    Changes c;
    c.remove_kernel("copy", id);
    return runtime().apply(std::move(c)).value();
  }

  base::TempFolder folder_;
  Folder plugins_;
  Bare bare_;
  const std::string rules_, record_;
};

TEST_F(Processes, AStartedProgramInheritsNoFiles) {
  const auto before = files_of(Way::kSpawn);
  use_everything();
  for (const Way way : {Way::kVfork, Way::kSpawn, Way::kFork}) EXPECT_EQ(files_of(way), before);
  // A program that a child executes inherits nothing either, even if the child's own watcher and
  // recording have started.
  EXPECT_EQ(files_of(Way::kForkAndCall, [&] { ran(), ask(runtime()); }), before);
}

TEST_F(Processes, AStartedProgramInheritsNoFilesWhileTheyAreOpenedAndClosed) {
  const auto before = files_of(Way::kSpawn);
  use_everything();
  const std::string path = plugins_.put("of_a_group");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread opens([&] {
    while (!stop) {
      wrong += !runtime().plugins().load(path).ok();
      wrong += !runtime().plugins().unload("of_a_group").ok();
      wrong += !runtime().rules().load(rules_).ok();
      wrong += !runtime().recording().stop().ok() || !runtime().recording().to(record_).ok();
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(files_of(i % 2 == 0 ? Way::kVfork : Way::kSpawn), before);
  stop = true;
  opens.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Processes, StartingProgramsDisturbsNoCall) {
  use_everything();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) wrong += ran() <= 0;
    });
  threads.emplace_back([&] {
    for (int i = 0; !stop; ++i) wrong += !runtime().set_policy({}).ok();
  });
  const auto calls = [&] { return runtime().list().find_op("copy")->kernels[0].calls; };
  for (int i = 0; i < 40; ++i) {
    const uint64_t before = calls();
    EXPECT_EQ(said_by(i % 2 == 0 ? Way::kVfork : Way::kSpawn, g_nothing), "");
    EXPECT_GE(calls(), before) << "this process was taken for a child";
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// ---- Forked children ----

TEST_F(Processes, AChildWatchesAgainAfterItsFirstCall) {
  use_everything();
  EXPECT_TRUE(true_in_child([&] {
    EXPECT_EQ(threads_here(), 1u) << "nothing begins by itself";
    EXPECT_EQ(ran(), 1);
    EXPECT_GE(threads_here(), 2u);
    say("default.b");
    EXPECT_TRUE(eventually([&] { return ran() == 2; }, seconds(20)));
    // A version takes effect a moment before it is added to the history.
    EXPECT_TRUE(eventually([&] { return runtime().rules().history().size() == 2; }, seconds(20)));
    return !HasFailure();
  }));
  EXPECT_TRUE(eventually([&] { return ran() == 2; })) << "the parent watches, too";
}

// The test runs in a child, because a process makes its shared runtime only once.
TEST_F(Processes, AChildForkedWhileTheSharedRuntimeIsMadeMakesItsOwn) {
  EXPECT_TRUE(true_in_child([] {
    static std::atomic<bool> begun{false}, go_on{false};
    ::setenv("YARD_STRICT", "perhaps", 1);
    set_log_sink([](const LogMessage&) {
      for (begun = true; !go_on;) std::this_thread::yield();
    });
    std::thread maker([] { Runtime::shared(); });
    while (!begun) std::this_thread::yield();
    const bool good = true_in_child([] {
      go_on = true;
      return Runtime::shared().list().find_op("rms_norm") != nullptr;
    });
    go_on = true;
    maker.join();
    return good && Runtime::shared().list().find_op("rms_norm") != nullptr;
  }));
}

TEST_F(Processes, AChildDoesNotWatchAfterUnwatch) {
  use_everything();
  EXPECT_TRUE(true_in_child([&] {
    runtime().rules().unwatch();
    if (ran() != 1) return false;
    say("default.b");
    std::this_thread::sleep_for(milliseconds(200));
    return ran() == 1;
  }));
}

TEST_F(Processes, AChildForkedInsideAKernelOnAnotherThreadHasItsScopeAndItsOwnFiles) {
  static std::function<void()> inside;
  yard_kernel_t forks = kernel_of("copy", "forks", 3, 5);
  forks.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    return inside(), YARD_OK;
  };
  bare_.add(forks).or_throw();
  use_everything();
  pid_t child = -1;
  inside = [&] {
    if ((child = ::fork()) == 0) ::alarm(60);
  };
  std::thread([&] {
    float to[4] = {}, from[4] = {};
    {
      const ScopedPolicy scope(Scope().deny_kernels({"default.a"}));
      Options o;
      o.force = "forks";
      base::replace(rules_, "version: '1.0'\n");
      ASSERT_TRUE(eventually([&] { return ran() == 2; }));  // the choice of the scope
      const Status s = copy.on(runtime()).with(o)(TensorView(to, DType::f32, {4}),
                                                  TensorView(from, DType::f32, {4}), 0);
      if (child == 0 && (!s.ok() || ran() != 2)) ::_exit(2);
      ASSERT_TRUE(s.ok());
    }
    if (child != 0) return;
    if (ran() != 1) ::_exit(3);
    if (!runtime().recording().stop().ok()) ::_exit(4);
    const std::string own = record_ + "." + std::to_string(::getpid());
    ::_exit(read_file(own).find("copy(") != std::string::npos ? 0 : 5);
  }).join();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WIFEXITED(status));
  inside = nullptr;
}

// ---- Tickets ----

TEST_F(Processes, ATicketPendingAtAForkIsDoneInTheChild) {
  fault::FaultKernel slow{{.op = "copy", .id = "fault.slow", .backend = "test", .priority = 900},
                          {.blocks = true}};
  ASSERT_TRUE(bare_.add(slow.descriptor()).ok());
  std::thread caller([&] { EXPECT_NE(ran(), -1); });
  ASSERT_TRUE(slow.wait_for_waiters(1, milliseconds(20000)));
  const Ticket t = remove("fault.slow");
  ASSERT_FALSE(t.done());
  EXPECT_TRUE(true_in_child([&] {
    return t.done() && t.wait(seconds(0)).ok() && ran() == 1 && remove("default.a").wait().ok();
  }));
  EXPECT_FALSE(t.done()) << "the parent's call goes on";
  slow.release();
  caller.join();
  EXPECT_TRUE(t.wait(seconds(10)).ok());
}

TEST_F(Processes, ATicketIsNotDoneBeforeTheChildHasLeftItsCall) {
  fault::FaultKernel forks{{.op = "copy", .id = "fault.forks", .backend = "test", .priority = 900}};
  ASSERT_TRUE(bare_.add(forks.descriptor()).ok());
  pid_t child = -1;
  Ticket t;
  bool pending = false;
  forks.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    t = remove("fault.forks");
    child = ::fork();
    if (child == 0) ::alarm(60);
    pending = !t.done() && t.wait(seconds(1)).code() == Code::kWouldDeadlock;
    return YARD_OK;
  }});
  float to[4] = {}, from[4] = {};
  const Status s =
      copy.on(runtime())(TensorView(to, DType::f32, {4}), TensorView(from, DType::f32, {4}), 0);
  const bool ok = s.ok() && pending && t.wait(seconds(20)).ok() && ran() == 1;
  if (child == 0) ::_exit(ok ? 0 : 1);
  EXPECT_TRUE(ok);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A call may be the last owner of a recording that ended in the meantime. Its thread and file
// belong to the parent.
TEST_F(Processes, AnEndedRecordingDoesNotBlockAChild) {
  fault::FaultKernel forks{{.op = "copy", .id = "fault.forks", .backend = "test", .priority = 900}};
  ASSERT_TRUE(bare_.add(forks.descriptor()).ok());
  runtime().recording().to(record_).or_throw();
  pid_t child = -1;
  forks.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    std::thread([&] { runtime().recording().stop().or_throw(); }).join();
    child = ::fork();
    if (child == 0) base::end_after_a_minute();
    return YARD_OK;
  }});
  float to[4] = {}, from[4] = {};
  const Status s = runtime().call(
      "copy", {TensorView(to, DType::f32, {4}), TensorView(from, DType::f32, {4}), 0});
  forks.set({});
  const bool ok =
      s.ok() && runtime().set_policy({}).ok() && bare_.remove("copy", "fault.forks").ok();
  if (child == 0) ::_exit(ok ? 0 : 1);
  EXPECT_TRUE(ok);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// In a new namespace a child may have the process id that its parent has in another namespace.
TEST_F(Processes, AChildIsDistinguishedFromAParentWithTheSameProcessId) {
  use_everything();
  const bool can = true_in_child([] { return ::unshare(CLONE_NEWPID) == 0; });
  if (!can) GTEST_SKIP() << "no namespaces for processes here";
  EXPECT_TRUE(true_in_child([&] {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    return true_in_child([&] {  // the first process of its namespace
      if (::getpid() != 1 || ran() != 1 || ::unshare(CLONE_NEWPID) != 0) return false;
      return true_in_child([&] {  // the first process of another namespace
        if (::getpid() != 1 || ran() != 1) return false;
        say("default.b");
        return eventually([&] { return ran() == 2; }, seconds(20));
      });
    });
  }));
}

TEST_F(Processes, APluginBeingUnloadedDoesNotBlockAChild) {
  fault::FaultKernel slow{{.op = "answer", .id = "fault.slow", .backend = "test", .priority = 900},
                          {.blocks = true}};
  use_everything();
  // The call does not end, so it keeps objects of the plugin alive.
  ASSERT_TRUE(bare_.add(slow.descriptor()).ok());
  std::thread caller([&] { ask(runtime()); });
  ASSERT_TRUE(slow.wait_for_waiters(1, milliseconds(20000)));
  ASSERT_TRUE(bare_.remove("answer", "fault.slow").ok());
  const Ticket t = runtime().plugins().unload("answer").value();
  EXPECT_TRUE(true_in_child([&] {
    return t.done() && t.wait(seconds(0)).ok() &&
           runtime().plugins().load(plugins_.file("answer.so")).ok() && ask(runtime()) == 1;
  }));
  slow.release();
  caller.join();
  EXPECT_TRUE(t.wait(seconds(10)).ok());
}

// Both a verifier inside a change and the query of a plugin hang.
TEST_F(Processes, AChildForkedWhilePluginCodeHangsMakesChangesAndLoadsPlugins) {
  static std::atomic<bool> hangs, reached;
  hangs = reached = false;
  yard_kernel_t hanging = kernel_of("copy", "default.hanging", 3, 5);
  hanging.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t {
    while (hangs) reached = true, std::this_thread::sleep_for(milliseconds(1));
    return YARD_OK;
  };
  ASSERT_TRUE(bare_.add(hanging).ok());
  ASSERT_EQ(ran(), 1);
  const std::string gate = folder_ / "gate";
  ::setenv("PLUGIN_WAITS", gate.c_str(), 1);
  std::ofstream(gate) << "closed";
  std::thread loads(
      [&] { EXPECT_TRUE(runtime().plugins().load(plugins_.put("query_waits")).ok()); });
  EXPECT_TRUE(eventually([&] { return waits_at(gate); }));
  hangs = true;
  Policy strict;
  strict.strict = true;
  std::thread changes([&] {
    EXPECT_TRUE(runtime().set_policy(strict).ok());
    EXPECT_EQ(ran(), 1);  // selects, and hangs
  });
  EXPECT_TRUE(eventually([&] { return reached.load(); }));
  EXPECT_TRUE(true_in_child([&] {
    hangs = false;
    return ran() == 1 && bare_.add(kernel_of("copy", "default.better", 4, 900)).ok() &&
           ran() == 4 && runtime().plugins().load(plugins_.put("answer")).ok() &&
           ask(runtime()) == 1;
  }));
  hangs = false;
  fs::remove(gate);
  changes.join(), loads.join();
  ::unsetenv("PLUGIN_WAITS");
  EXPECT_TRUE(runtime().policy().strict.value_or(false));
  EXPECT_EQ(ask(runtime(), "behave"), 0);
}

// ---- Libraries ----

TEST(Libraries, ForkWaitsUntilOneIsOpenedOrClosed) {
  if (std::string_view(::gnu_get_libc_version()) < "2.36")
    GTEST_SKIP() << "handlers of fork cannot wait with this C library";
  Folder folder, gates;
  const std::string gate = gates.file("gate");
  ::setenv("PLUGIN_WAITS", gate.c_str(), 1);
  for (const bool opens : {true, false}) {
    SCOPED_TRACE(opens);
    Runtime runtime(alone());
    const std::string path = folder.put(opens ? "load_waits" : "close_waits");
    if (!opens) {
      ASSERT_TRUE(runtime.plugins().load(path).ok());
    }
    std::ofstream(gate) << "closed";
    std::thread other([&] {
      EXPECT_TRUE(opens ? runtime.plugins().load(path).ok()
                        : runtime.plugins().unload("behave").ok());
    });
    EXPECT_TRUE(eventually([&] { return waits_at(gate); }));
    std::thread ends([&] {
      std::this_thread::sleep_for(milliseconds(50));  // lets the fork begin before the gate opens
      fs::remove(gate);
    });
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    EXPECT_FALSE(fs::exists(gate)) << "fork has not waited";
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    ends.join(), other.join();
  }
  ::unsetenv("PLUGIN_WAITS");
}

}  // namespace
}  // namespace yard::testing
