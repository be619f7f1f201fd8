// SPDX-License-Identifier: Apache-2.0
// Logs: levels and their grammar, each message once, sinks that misbehave, the default sink, fork.
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "base/text.h"

namespace yard::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Each test begins and ends with the default sink and levels, and has its own texts.
class Log : public ::testing::Test {
 protected:
  Log() { reset(); }
  ~Log() override { reset(); }

  static void reset() {
    set_log_sink({});
    apply_log_levels("").or_throw();
  }
  void collect() {
    set_log_sink([this](const LogMessage& m) { seen_.push_back(fmt_line(m)); });
  }
  static std::string fmt_line(const LogMessage& m) {
    return std::string(to_string(m.level)) + ' ' + std::string(m.logger) + ' ' +
           std::string(m.text);
  }
  // Returns a text that no other test has.
  static std::string unique(std::string text) {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    return text + " of " + info->name();
  }
  std::vector<std::string> seen_;
};

TEST_F(Log, AnEventIsWrittenEachTime) {
  collect();
  const std::string text = unique("it happened");
  for (int i = 0; i < 3; ++i) log_event(LogLevel::kError, "policy", text);
  log(LogLevel::kError, "policy", text);  // was logged before
  EXPECT_THAT(seen_,
              ElementsAre("error policy " + text, "error policy " + text, "error policy " + text));
  log_event(LogLevel::kDebug, "policy", text);
  EXPECT_EQ(seen_.size(), 3u);
}

TEST_F(Log, EachDistinctMessageIsWrittenOnce) {
  collect();
  const std::string text = unique("text");
  for (int i = 0; i < 5; ++i) log(LogLevel::kWarn, "select", text);
  log(LogLevel::kError, "select", text);
  log(LogLevel::kWarn, "plugin", text + "\n");
  EXPECT_THAT(seen_,
              ElementsAre("warn select " + text, "error select " + text, "warn plugin " + text));
}

TEST_F(Log, LevelsArePerLogger) {
  collect();
  EXPECT_EQ(log_level("select"), LogLevel::kWarn);
  log(LogLevel::kInfo, "select", unique("a"));
  set_log_level(LogLevel::kError);
  ASSERT_TRUE(set_log_level("select", LogLevel::kDebug).ok());
  log(LogLevel::kDebug, "select", unique("b"));
  log(LogLevel::kWarn, "plugin", unique("c"));
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "plugin", unique("d"));
  log(LogLevel::kOff, "select", unique("e"));
  EXPECT_THAT(seen_, ElementsAre("debug select " + unique("b")));
  EXPECT_EQ(log_level("plugin"), LogLevel::kOff);
  EXPECT_EQ(log_level("nobody"), LogLevel::kOff);
  EXPECT_FALSE(log_enabled("plugin", LogLevel::kError));
  EXPECT_TRUE(log_enabled("select", LogLevel::kDebug));
}

TEST_F(Log, UnknownLoggersAreRefused) {
  const Status s = set_log_level("selct", LogLevel::kDebug);
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_EQ(s.message(), "no logger is called \"selct\"; did you mean 'select'?");
  EXPECT_EQ(loggers().size(), kLoggerCount);
}

TEST_F(Log, TextSetsLevelsInAnyCaseAndSaysEverything) {
  ASSERT_TRUE(apply_log_levels(" INFO , Select = Debug,plugin=off").ok());
  EXPECT_EQ(log_level("select"), LogLevel::kDebug);
  EXPECT_EQ(log_level("plugin"), LogLevel::kOff);
  EXPECT_EQ(log_level("op"), LogLevel::kInfo);
  ASSERT_TRUE(apply_log_levels("plugin=Warning").ok());
  EXPECT_EQ(log_level("select"), LogLevel::kWarn);
  EXPECT_EQ(log_level("plugin"), LogLevel::kWarn);
  ASSERT_TRUE(apply_log_levels("error").ok());
  ASSERT_TRUE(apply_log_levels("  ").ok());
  EXPECT_EQ(log_level("op"), LogLevel::kWarn);
}

TEST_F(Log, TextThatMeansNothingChangesNothingAndNamesEveryProblem) {
  apply_log_levels("error,op=info").or_throw();
  const Status s = apply_log_levels("inof,selct=debug,,op=loud,info,info,op=,plugin,zebra=info");
  EXPECT_EQ(s.code(), Code::kParse);
  std::vector<std::string> all{std::string(s.message())};
  all.insert(all.end(), s.notes().begin(), s.notes().end());
  EXPECT_THAT(
      all, ElementsAre(
               "log levels: \"inof\" is not a level; expected debug, info, warn, error or off; did "
               "you "
               "mean 'info'?",
               "no logger is called \"selct\"; did you mean 'select'?",
               "entry 3 is empty; expected one ',' between entries",
               "\"loud\" is not a level; expected debug, info, warn, error or off",
               "there is a default already; expected one bare level",
               "a level is missing; expected debug, info, warn, error or off",
               "the logger plugin has no level; expected plugin=info",
               "no logger is called \"zebra\"; expected base, core, op, telemetry, registry, "
               "policy, health, "
               "select, exec, plugin, dispatch, verify, runtime, inspect or backend"));
  EXPECT_EQ(log_level("op"), LogLevel::kInfo);
  EXPECT_EQ(log_level("select"), LogLevel::kError);
}

RC_GTEST_PROP(LogText, IsReadOrReported, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::oneOf(
      rc::gen::elementOf(std::string("infodebugwarn=,select \t")), rc::gen::arbitrary<char>()));
  std::vector<std::string> problems;
  const LogLevels levels = parse_log_levels(text, problems);
  for (uint32_t slot = 0; problems.empty() && slot <= kLoggerCount; ++slot) {
    RC_ASSERT(level_in_slot(levels, slot) >= 1u);
    RC_ASSERT(level_in_slot(levels, slot) <= 5u);
  }
  const Status s = apply_log_levels(text);
  RC_ASSERT(s.ok() == problems.empty());
  apply_log_levels("").or_throw();
}

TEST_F(Log, ASinkMayThrowAndMayLog) {
  int calls = 0;
  const std::string outer = unique("outer"), inner = unique("inner");
  set_log_sink([&](const LogMessage&) {
    ++calls;
    log(LogLevel::kError, "base", inner);
    log(LogLevel::kError, "base", inner);
    throw std::runtime_error("no");
  });
  log(LogLevel::kError, "base", outer);
  EXPECT_EQ(calls, 1);
  collect();
  log(LogLevel::kError, "base", outer);
  log(LogLevel::kError, "base", inner);
  EXPECT_THAT(seen_, ElementsAre("error base " + inner));
}

TEST_F(Log, ASinkMayChangeSinkAndLevelsAndIsDestroyedAfterItsLastUse) {
  const auto token = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = token;
  bool alive = false;
  set_log_sink([token, watch, &alive](const LogMessage&) {
    set_log_sink({});
    set_log_level(LogLevel::kError);
    alive = watch.use_count() > 1;
  });
  log(LogLevel::kWarn, "base", unique("x"));
  EXPECT_TRUE(alive);
  EXPECT_EQ(watch.use_count(), 1) << "only the test's own is left";
  EXPECT_EQ(log_level("base"), LogLevel::kError);
}

TEST_F(Log, OldMessagesAreForgotten) {
  collect();
  const std::string first = unique("first"), kept = unique("kept");
  log(LogLevel::kWarn, "op", first);
  log(LogLevel::kWarn, "op", kept);
  for (size_t i = 0; i < kMostMessages + 10; ++i) {
    log(LogLevel::kWarn, "op", unique("filler " + std::to_string(i)));
    if (i % 1000 == 0) log(LogLevel::kWarn, "op", kept);
  }
  seen_.clear();
  log(LogLevel::kWarn, "op", kept);
  log(LogLevel::kWarn, "op", first);
  EXPECT_THAT(seen_, ElementsAre("warn op " + first)) << "messages that go on are not forgotten";
}

TEST_F(Log, LongTextsAreCutBetweenCharacters) {
  collect();
  std::string text(kLongestText - 1, 'x');
  log(LogLevel::kWarn, "op", text + "\xc3\xa4\xc3\xa4");
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_THAT(seen_[0], ::testing::EndsWith("xxx ... 4 bytes more"));
}

TEST_F(Log, ErrnoStays) {
  set_log_sink([](const LogMessage&) { errno = ENOENT; });
  errno = EDOM;
  log(LogLevel::kWarn, "op", unique("x"));
  EXPECT_EQ(errno, EDOM);
}

TEST_F(Log, TheDefaultWritesOneLineToStderrWithoutColours) {
  ::testing::internal::CaptureStderr();
  log(LogLevel::kWarn, "select", unique("{} %v"));
  log(LogLevel::kWarn, "select", unique("{} %v"));
  log(LogLevel::kError, "backend", unique("b"));
  const std::string got = ::testing::internal::GetCapturedStderr();
  const size_t end = got.find('\n') + 1;
  EXPECT_THAT(got.substr(0, end),
              MatchesRegex("20[0-9][0-9]-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+[.][0-9]+Z warn "
                           "yard.select: .. %v of [A-Za-z]+\n"));
  EXPECT_THAT(got.substr(end), HasSubstr("Z error yard.backend: " + unique("b") + "\n"));
  EXPECT_EQ(std::count(got.begin(), got.end(), '\n'), 2);
}

TEST_F(Log, TheDefaultIsColouredOnATerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
    GTEST_SKIP() << "no terminal to be had";
  const int inner = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(inner, 0);
  const int saved = dup(STDERR_FILENO);
  dup2(inner, STDERR_FILENO);
  log(LogLevel::kError, "select", unique("x"));
  dup2(saved, STDERR_FILENO);
  char buffer[512];
  const ssize_t n = read(terminal, buffer, sizeof buffer);
  for (int fd : {saved, inner, terminal}) close(fd);
  ASSERT_GT(n, 0);
  EXPECT_THAT(std::string(buffer, static_cast<size_t>(n)), HasSubstr("\x1b[31merror\x1b[0m yard."));
}

// Returns the exit code of a child that runs `f`, or 1000 plus the signal that killed it.
template <class F>
int in_child(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_F(Log, ALineIntoABrokenPipeDoesNotKill) {
  const std::string text = unique("x");
  EXPECT_EQ(in_child([&] {
              int ends[2];
              if (pipe(ends) != 0) _exit(1);
              dup2(ends[1], STDERR_FILENO);
              close(ends[0]), close(ends[1]);
              signal(SIGPIPE, SIG_DFL);
              log(LogLevel::kError, "select", text);
              sigset_t pending, blocked;
              sigpending(&pending);
              pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
              if (sigismember(&pending, SIGPIPE) || sigismember(&blocked, SIGPIPE)) _exit(2);
            }),
            0);
}

TEST_F(Log, ALineBeyondTheFileLimitDoesNotKill) {
  const std::string text = unique("x");
  EXPECT_EQ(in_child([&] {
              std::FILE* file = std::tmpfile();
              if (file == nullptr) _exit(1);
              dup2(fileno(file), STDERR_FILENO);
              signal(SIGXFSZ, SIG_DFL);
              const rlimit none{0, 0};
              setrlimit(RLIMIT_FSIZE, &none);
              log(LogLevel::kError, "select", text);
            }),
            0);
}

TEST_F(Log, LinesCannotBeForged) {
  ::testing::internal::CaptureStderr();
  log(LogLevel::kWarn, "backend",
      unique("a\n2026-01-01T00:00:00.000Z error yard.policy: forged\x1b[2J"));
  const std::string got = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(got, HasSubstr("a\n  2026-01-01T00:00:00.000Z error"));
  EXPECT_THAT(got, HasSubstr("forged\\x1b[2J"));
  EXPECT_THAT(got, Not(HasSubstr("\x1b")));
}

TEST_F(Log, AClosedStderrIsNoProblem) {
  const int saved = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  log(LogLevel::kError, "select", unique("x"));
  dup2(saved, STDERR_FILENO);
  close(saved);
}

// A child that is forked while other threads log can log too, and never waits for them.
TEST_F(Log, AChildOfForkLogsWhateverItsParentsThreadsWereDoing) {
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  set_log_sink([&](const LogMessage&) { written.fetch_add(1, std::memory_order_relaxed); });
  const std::string common = unique("common");
  log(LogLevel::kWarn, "base", common);
  std::thread busy([&] {
    for (int i = 0; !stop.load(); ++i) log(LogLevel::kWarn, "op", unique(std::to_string(i)));
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a child that hangs is killed
      written.store(0);
      log(LogLevel::kWarn, "base", common);
      log(LogLevel::kWarn, "base", common);
      const bool sink_kept = written.load() == 1;
      dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
      set_log_sink({});
      log(LogLevel::kError, "base", common);  // uses the default sink
      apply_log_levels("off").ignore();
      _exit(sink_kept ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "the child hung";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace yard::base
