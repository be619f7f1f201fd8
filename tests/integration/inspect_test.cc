// SPDX-License-Identifier: Apache-2.0
// Tests live control: when a process answers, what it reports, and that neither clients nor the end
// of a runtime disturb callers.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <yard/abi.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/testing_files.h"
#include "inspect_testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using World = InspectWorld;

// Counts the threads of this process that answer. A new thread sets its name itself, so the count
// may lag.
int threads_that_answer() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name == "yard-inspect";
  }
  return count;
}

bool servers(int count) {
  return base::eventually([&] { return threads_that_answer() == count; }, std::chrono::seconds(20));
}

std::string socket_of(int64_t pid) {
  for (const InspectClient::Target& t : inspect_targets())
    if (t.pid == pid) return t.socket;
  return "";
}

TEST(Inspect, AnswersFromTheFirstCallToTheEndOfTheLastRuntime) {
  std::string path;
  {
    World w;
    EXPECT_EQ(threads_that_answer(), 0);
    EXPECT_EQ(InspectClient::connect(::getpid()).status().code(), Code::kNotFound);
    EXPECT_EQ(w.call(), "vendor.acme");
    EXPECT_TRUE(servers(1));
    path = socket_of(::getpid());
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
    {
      World other;
      EXPECT_EQ(other.call(), "vendor.acme");
      EXPECT_TRUE(servers(1));
      EXPECT_THAT(ask("hello"), HasSubstr("}, {"));  // two runtimes
    }
    EXPECT_THAT(ask("hello"), Not(HasSubstr("}, {")));
  }
  EXPECT_TRUE(servers(0));
  EXPECT_FALSE(std::filesystem::exists(path));
  World again;
  again.call();
  EXPECT_TRUE(servers(1));
}

#if !defined(YARD_UNDER_TSAN)  // TSan reports reading another thread's descriptors as a race
TEST(Inspect, DescriptorsAreClosedOnExec) {
  World w;
  w.call();
  ASSERT_TRUE(servers(1));
  const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socket_of(::getpid()).copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_THAT(ask("hello"), HasSubstr("\"ok\": true"));
  int sockets = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat info;
    if (::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(sockets, 3);
  ::close(client);
}
#endif

TEST(Inspect, QuestionsAreAnswered) {
  World w;
  w.call();
  const std::string hello = ask("hello");
  EXPECT_THAT(hello, HasSubstr("\"id\": 3, \"ok\": true"));
  EXPECT_THAT(hello, HasSubstr("\"pid\": " + std::to_string(::getpid())));
  EXPECT_THAT(hello, HasSubstr("inspect_socket_test"));
  EXPECT_THAT(hello, HasSubstr("\"shared\": false"));
  EXPECT_THAT(ask("status"), HasSubstr("\"last_change\": null"));
  EXPECT_THAT(ask("status"), HasSubstr("\"config\": {\"path\": null, \"version\": 0"));
  EXPECT_THAT(ask("list"), HasSubstr("{\"id\": \"vendor.acme\", \"kind\": \"default\""));
  EXPECT_THAT(ask("explain", R"_({"call": "norm(f32[1,64])"})_"),
              HasSubstr("\"selected\": \"vendor.acme\""));
  EXPECT_THAT(ask("health"), HasSubstr("\"breakers\": []"));
  EXPECT_THAT(ask("policy"), HasSubstr("\"policy\": {}"));
  EXPECT_THAT(ask("config.history"), HasSubstr("\"versions\": []"));
  EXPECT_THAT(ask("config.show"), HasSubstr("\"yaml\": \"\""));
  EXPECT_THAT(ask("stats"), HasSubstr("\"generation\""));
  EXPECT_THAT(ask("changes"), HasSubstr("\"changes\": []"));
  EXPECT_THAT(ask("plans", R"({"op": "norm"})"), HasSubstr("\"kernel\": \"vendor.acme\""));
  EXPECT_THAT(ask("plans", R"({"op": "norm"})"), HasSubstr("{\"kernel\": \"default.b\""));
}

TEST(Inspect, WrongQuestionsAreNamed) {
  World w;
  w.call();
  EXPECT_THAT(ask("statu"), HasSubstr("did you mean 'status'?"));
  EXPECT_THAT(ask("explain"), HasSubstr("invalid call: expected a string, got none"));
  EXPECT_THAT(ask("explain", R"({"cal": "x"})"), HasSubstr("did you mean 'call'?"));
  EXPECT_THAT(ask("explain", R"({"call": 7})"), HasSubstr("invalid call: expected a string"));
  EXPECT_THAT(ask("explain", R"_({"call": "none(f32[1])"})_"), HasSubstr("\"unknown_op\""));
  EXPECT_THAT(ask("hello", R"({"x": 1})"), HasSubstr("invalid argument of hello: expected none"));
  EXPECT_THAT(ask("plans", R"({"op": "nrm"})"), HasSubstr("did you mean 'norm'?"));
  EXPECT_THAT(ask("config.load", R"({"path": "rules.yaml"})"), HasSubstr("begins with /"));
  EXPECT_THAT(ask("undo"), HasSubstr("there is no change to undo"));
  EXPECT_THAT(InspectClient::connect(::getpid())
                  .value()
                  .request(R"({"v": 1, "command": "stats", "runtime": 99})")
                  .value(),
              HasSubstr("invalid runtime: expected "));
  auto client = InspectClient::connect(::getpid()).value();
  EXPECT_FALSE(client.request("{}\n{}").ok());
  EXPECT_THAT(ask(client, "hello"), HasSubstr("\"ok\": true"));
}

TEST(Inspect, CanBeSwitchedOff) {
  {
    RuntimeSettings off;
    off.inspect = false;
    World w(off);
    w.call();
    EXPECT_TRUE(servers(0));
  }
  World w;
  w.call();
  EXPECT_TRUE(servers(1));
  ::setenv("YARD_INSPECT", "off", 1);
  ASSERT_TRUE(w.runtime.rules().reload_environment().ok());
  EXPECT_TRUE(servers(0));
  {
    World other;
    other.call();
    EXPECT_TRUE(servers(0));
  }
  ::setenv("YARD_INSPECT", "maybe", 1);
  EXPECT_THAT(std::string(w.runtime.rules().reload_environment().message()),
              HasSubstr("YARD_INSPECT"));
  ::unsetenv("YARD_INSPECT");
  ASSERT_TRUE(w.runtime.rules().reload_environment().ok());
  w.call(128);
  w.call(1 << 12);
  EXPECT_TRUE(servers(1));
}

TEST(Inspect, SocketsOfProcessesThatAreGoneAreRemoved) {
  World w;
  w.call();
  const std::string path = socket_of(::getpid());
  ASSERT_NE(path, "");
  // No process has this id.
  const std::string stale = std::filesystem::path(path).parent_path() / "4194303.sock";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  stale.copy(address.sun_path, sizeof address.sun_path - 1);
  ::unlink(stale.c_str());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  ASSERT_TRUE(std::filesystem::exists(stale));
  EXPECT_EQ(socket_of(::getpid()), path);
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Inspect, AClientRefusesASocketOfAnotherProcess) {
  World w;
  w.call();
  const std::string path = socket_of(::getpid());
  const std::string fake = std::filesystem::path(path).parent_path() / "1.sock";
  std::error_code error;
  std::filesystem::remove(fake, error);
  std::filesystem::create_symlink(path, fake, error);
  ASSERT_FALSE(error);
  if (::getpid() != 1) {
    EXPECT_EQ(InspectClient::connect(1).status().code(), Code::kInvalidArgument);
  }
  std::filesystem::remove(fake);
  EXPECT_EQ(InspectClient::connect(-1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(InspectClient::connect(4194303).status().code(), Code::kNotFound);
}

TEST(Inspect, CallersGoOnWhileClientsAskAndChange) {
  World w;
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !done; ++i) {
        const std::string kernel = w.call(64 + i % 7 + t, "B");
        if (kernel != "vendor.acme" && kernel != "default.b") ++wrong;
      }
    });
  ASSERT_TRUE(servers(1));
  auto client = InspectClient::connect(::getpid()).value();
  for (int i = 0; i < 30; ++i) {
    for (const char* command : {"stats", "status", "list", "health", "policy", "hello", "changes"})
      EXPECT_THAT(ask(client, command), HasSubstr("\"ok\": true"));
    EXPECT_THAT(ask(client, "plans", R"({"op": "norm"})"), HasSubstr("\"ok\": true"));
    EXPECT_THAT(ask(client, "deny", R"({"kernel": "vendor.acme", "when": "tenant=B"})"),
                HasSubstr("\"ok\": true"));
    EXPECT_THAT(ask(client, "undo"), HasSubstr("\"ok\": true"));
  }
  done = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Inspect, RuntimesEndWhileClientsAsk) {
  std::atomic<bool> done{false};
  std::vector<std::thread> clients;
  for (int t = 0; t < 2; ++t)
    clients.emplace_back([&] {
      while (!done)
        if (auto client = InspectClient::connect(::getpid()); client.ok())
          for (int i = 0; i < 5; ++i) ask(*client, i % 2 == 0 ? "stats" : "list");
    });
  for (int i = 0; i < 15; ++i) {
    World w;
    EXPECT_EQ(w.call(), "vendor.acme");
  }
  done = true;
  for (auto& t : clients) t.join();
  EXPECT_TRUE(servers(0));
}

#if !defined(YARD_UNDER_TSAN)
TEST(Inspect, AForkedChildAnswersForItselfFromItsFirstCallOn) {
  World w;
  w.call();
  const std::string ours = socket_of(::getpid());
  ask("policy.set", R"({"fields": {"strict": true}})");
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const bool quiet = threads_that_answer() == 0;
    const bool served = w.call() == "vendor.acme" && servers(1);
    const bool good = quiet && served;
    char byte = good ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(2);
    const bool denied = w.call() == "default.b";
    ::exit(good && denied ? 0 : 1);  // runs exit handlers, which remove the socket
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  const std::string theirs = socket_of(child);
  EXPECT_NE(theirs, "");
  EXPECT_NE(theirs, ours);
  {
    auto client = InspectClient::connect(child).value();
    EXPECT_THAT(ask(client, "hello"), HasSubstr("\"pid\": " + std::to_string(child)));
    EXPECT_THAT(ask(client, "changes"), HasSubstr("\"changes\": []"));
    EXPECT_THAT(ask(client, "deny", R"({"kernel": "vendor.acme"})"), HasSubstr("\"ok\": true"));
  }
  EXPECT_EQ(w.call(), "vendor.acme");
  ASSERT_EQ(::write(go[1], &byte, 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(theirs));
  EXPECT_THAT(ask("changes"), HasSubstr("policy.set"));
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}

TEST(Inspect, AChildWithoutACallHasNeitherThreadNorSocket) {
  World w;
  w.call();
  const std::string ours = socket_of(::getpid());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(threads_that_answer() == 0 ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(socket_of(::getpid()), ours);
}
#endif

// All processes are asked at once, so that several silent processes cost the time of one.
TEST(Inspect, AProcessThatDoesNotAnswerIsListedAsSuch) {
  constexpr int kProcesses = 6;
  constexpr std::chrono::seconds kTimeout(1);
  std::vector<pid_t> stopped;
  for (int i = 0; i < kProcesses; ++i) {
    stopped.push_back(::fork());
    if (stopped.back() == 0) {
      ::alarm(300);  // ends the child if the test fails before it kills it
      World w;
      w.call();
      for (;;) ::pause();
    }
  }
  for (const pid_t pid : stopped)
    ASSERT_TRUE(base::eventually([&] { return InspectClient::connect(pid).ok(); }));
  for (const pid_t pid : stopped) {
    ::kill(pid, SIGSTOP);
    int status = 0;
    // waitpid returns after all threads of the child have stopped.
    ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto all = inspect_targets(kTimeout);
  // Asking one after the other would take kProcesses * kTimeout. The margin is for a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, (kProcesses - 1) * kTimeout);
  for (const pid_t pid : stopped) {
    const auto found = std::ranges::find(all, pid, &InspectClient::Target::pid);
    ASSERT_NE(found, all.end()) << pid;
    EXPECT_THAT(found->problem, HasSubstr("has not answered in time"));
    EXPECT_EQ(found->hello, "");
    EXPECT_THAT(found->program, HasSubstr("inspect_socket_test"));
    EXPECT_GT(found->started.time_since_epoch().count(), 0);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

// The test hangs if anything waits for the pipe.
TEST(Inspect, VerboseLinesThatNobodyReadsStopNothing) {
  World w;
  w.call();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  const std::string on = ask("verbose", R"({"level": 1})");
  for (int i = 0; i < 40'000; ++i) w.call();
  const std::string status = ask("status");
  const std::string off = ask("verbose", R"({"level": 0})");
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::string read;
  EXPECT_TRUE(base::eventually([&] {
    char buffer[65536];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      read.append(buffer, static_cast<size_t>(n));
    return read.find(" lines were dropped") != read.npos;
  }));
  ::dup2(before, STDERR_FILENO);
  ::close(before), ::close(ends[0]);
  EXPECT_THAT(on, HasSubstr("\"ok\": true"));
  EXPECT_THAT(status, HasSubstr("\"verbose\": 1"));
  EXPECT_THAT(off, HasSubstr("\"ok\": true"));
  EXPECT_THAT(read, HasSubstr("yard,exec,norm,vendor.acme,"));
}

}  // namespace
}  // namespace yard::testing
