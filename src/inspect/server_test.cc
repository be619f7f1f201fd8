// SPDX-License-Identifier: Apache-2.0
// Tests the server against clients that are well-behaved, many, slow, endless, silent or of other
// users.
#include "inspect/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/abi.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/testing_files.h"
#include "inspect/socket.h"

namespace yard::inspect {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kEcho = R"({"v": 1, "id": 1, "command": "echo"})";

Result<std::string> echo(const Request& request, const Peer& who) {
  if (request.command == "large") return "\"" + std::string(8 << 20, 'x') + "\"";
  if (request.command == "throw") throw std::runtime_error("thrown");
  if (request.command == "fail") return Status(Code::kNotFound, "not there");
  return "[\"" + request.command + "\", " + std::to_string(who.process) + "]";
}

// A client that may break the protocol.
class Raw {
 public:
  explicit Raw(const std::string& path) : socket_(make_socket()) {
    connected_ = connect_to(socket_, path) == 0;
  }
  bool connected() const { return connected_; }
  ssize_t send(std::string_view bytes) const {
    return ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Returns a line without its newline. Returns "closed" at the end of the connection, or "silent"
  // if the time is over.
  std::string line(milliseconds within = seconds(20)) {
    const auto until = Clock::now() + within;
    for (;;) {
      if (const size_t end = in_.find('\n'); end != in_.npos) {
        std::string to = in_.substr(0, end);
        in_.erase(0, end + 1);
        return to;
      }
      if (!wait_for(socket_, POLLIN, until)) return "silent";
      char buffer[65536];
      const ssize_t n = ::recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return "closed";
      if (n > 0) in_.append(buffer, static_cast<size_t>(n));
    }
  }
  std::string ask(std::string_view request) {
    send(std::string(request) + "\n");
    return line();
  }

 private:
  base::File socket_;
  bool connected_ = false;
  std::string in_;
};

class ServerTest : public testing::Test {
 protected:
  void start(const Limits& limits = {}) {
    auto started = Server::start(folder_ / "s", echo, limits);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = *std::move(started);
  }
  std::string socket() const { return socket_path(folder_ / "s", ::getpid()); }

  const base::TempFolder folder_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersInOrder) {
  start();
  struct stat info;
  ASSERT_EQ(::lstat(socket().c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Raw client(socket());
  EXPECT_EQ(client.ask(kEcho), R"({"v": 1, "id": 1, "ok": true, "result": ["echo", )" +
                                   std::to_string(::getpid()) + "]}");
  client.send("\n\r\n" + std::string(kEcho) + "\r\n" + R"({"v": 1, "id": 2, "command": "fail"})" +
              "\n" + R"({"v": 1, "id": 3, "command": "throw"})" + "\n");
  EXPECT_THAT(client.line(), StartsWith(R"({"v": 1, "id": 1, "ok": true)"));
  EXPECT_THAT(client.line(), HasSubstr(R"("id": 2, "ok": false, "error": {"code": "not_found")"));
  EXPECT_THAT(client.line(), HasSubstr("thrown"));
  EXPECT_THAT(client.ask("rubbish"), HasSubstr("invalid JSON"));
  EXPECT_THAT(client.ask(kEcho), HasSubstr("\"ok\": true"));  // the server still answers
}

TEST_F(ServerTest, EndsWithItsSocket) {
  start();
  const std::string path = socket();
  Raw client(path);
  EXPECT_THAT(client.ask(kEcho), HasSubstr("\"ok\": true"));
  server_ = nullptr;
  EXPECT_EQ(client.line(), "closed");
  EXPECT_FALSE(std::filesystem::exists(path));
  start();
  EXPECT_THAT(Raw(socket()).ask(kEcho), HasSubstr("\"ok\": true"));
  EXPECT_EQ(Server::start(folder_ / "s", echo).status().code(), Code::kConflict);
}

// closefrom(3) frees descriptors, and the program's next files get their numbers.
TEST_F(ServerTest, LeavesFilesAloneThatHaveTheNumbersOfItsSockets) {
#if defined(YARD_UNDER_TSAN)
  GTEST_SKIP() << "it closes what another thread uses, which this sanitizer reports";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    start();
    Raw client(socket());
    if (client.ask(kEcho).find("\"ok\": true") == std::string::npos) ::_exit(1);
    ::close_range(3, ~0u, 0);
    int pairs[32][2];
    for (auto& pair : pairs)
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0 ||
          ::send(pair[0], "mine", 4, 0) != 4)
        ::_exit(2);
    const auto all_whole = [&] {
      char text[8];
      for (const auto& pair : pairs)
        if (::recv(pair[1], text, sizeof text, MSG_PEEK) != 4 || ::send(pair[0], "", 0, 0) != 0)
          return false;
      return true;
    };
    const pid_t grandchild = ::fork();  // closes the descriptors of the server that it inherits
    if (grandchild == 0) ::_exit(all_whole() ? 0 : 1);
    int status = 0;
    if (::waitpid(grandchild, &status, 0) != grandchild || status != 0) ::_exit(3);
    server_ = nullptr;
    ::_exit(all_whole() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ServerTest, LeavesASocketThatIsNotItsOwn) {
  start();
  const std::string path = socket();
  std::filesystem::remove(path);
  base::write_in_place(path, "of another");
  server_ = nullptr;
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(ServerTest, ReplacesAStaleSocket) {
  ASSERT_TRUE(make_directory(folder_ / "s").ok());
  {
    const base::File dead = make_socket();
    ASSERT_EQ(bind_to(dead, socket_path(folder_ / "s", ::getpid())), 0);
  }
  start();
  EXPECT_THAT(Raw(socket()).ask(kEcho), HasSubstr("\"ok\": true"));
}

TEST_F(ServerTest, RefusesRequestsThatAreTooLong) {
  start({.request = 1000});
  Raw exact(socket());
  std::string longest = R"({"v": 1, "id": 1, "command": "echo"})";
  longest.insert(1, 1000 - longest.size(), ' ');
  EXPECT_THAT(exact.ask(longest), HasSubstr("\"ok\": true"));
  EXPECT_THAT(exact.ask(longest + " "), HasSubstr("expected at most 1000 bytes"));
  Raw endless(socket());
  endless.send(std::string(100'000, '['));
  EXPECT_THAT(endless.line(), HasSubstr("expected at most 1000 bytes on a line"));
  EXPECT_EQ(endless.line(), "closed");
  EXPECT_THAT(Raw(socket()).ask(kEcho), HasSubstr("\"ok\": true"));
}

TEST_F(ServerTest, AnswersThatAreTooLongAreErrors) {
  start({.answer = 1 << 20});
  EXPECT_THAT(Raw(socket()).ask(R"({"v": 1, "id": 1, "command": "large"})"),
              HasSubstr("at most 1048576 are sent"));
}

TEST_F(ServerTest, TheLimitOfAnAnswerIsThatOfItsLine) {
  start({.answer = (8 << 20) + 10});  // the result of "large" has two bytes more than 8 MiB
  EXPECT_THAT(Raw(socket()).ask(R"({"v": 1, "id": 1, "command": "large"})"),
              HasSubstr("at most 8388618 are sent"));
}

TEST_F(ServerTest, ClosesSlowAndIdleConnections) {
  start({.request_time = milliseconds(100), .idle_time = milliseconds(300)});
  Raw slow(socket());
  const auto from = Clock::now();
  std::string got = "silent";
  // Sending a byte now and then does not extend the deadline.
  for (int i = 0; i < 100 && got == "silent"; ++i) {
    slow.send(" ");
    got = slow.line(milliseconds(20));
  }
  EXPECT_EQ(got, "closed");
  EXPECT_GE(Clock::now() - from, milliseconds(100));
  Raw idle(socket());
  EXPECT_EQ(idle.line(), "closed");
}

TEST_F(ServerTest, AClientThatReadsNothingHoldsUpNone) {
  start({.answer_time = milliseconds(300)});
  Raw deaf(socket());
  for (int i = 0; i < 50; ++i)
    deaf.send(R"({"v": 1, "id": 1, "command": "large"})"
              "\n");
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Raw(socket()).ask(kEcho), HasSubstr("\"ok\": true"));
  // The server closes the connection in the middle of the answer.
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_EQ(deaf.line(), "closed");
}

TEST_F(ServerTest, ALargeAnswerArrivesWhole) {
  start();
  Raw client(socket());
  const std::string line = client.ask(R"({"v": 1, "id": 1, "command": "large"})");
  EXPECT_GT(line.size(), size_t{8} << 20);
  EXPECT_THAT(line.substr(line.size() - 10), testing::EndsWith("xx\"}"));
  EXPECT_THAT(client.ask(kEcho), HasSubstr("\"ok\": true"));
}

TEST_F(ServerTest, ConnectionsAreLimited) {
  start({.connections = 3});
  std::vector<std::unique_ptr<Raw>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Raw>(socket()));
    EXPECT_THAT(clients.back()->ask(kEcho), HasSubstr("\"ok\": true"));
  }
  Raw refused(socket());
  EXPECT_THAT(refused.line(), HasSubstr("too many connections: expected at most 3"));
  EXPECT_EQ(refused.line(), "closed");
  clients.pop_back();
  EXPECT_TRUE(base::eventually(
      [&] { return Raw(socket()).ask(kEcho).find("\"ok\": true") != std::string::npos; }));
}

TEST_F(ServerTest, ServesManyThreads) {
  start();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        Raw client(socket());
        client.send("{\"v\": 1, ");
        client.send("\"id\": 5, \"command\": \"echo\"}\n");
        if (i % 3 != 0 && client.line().find("\"ok\": true") != std::string::npos) ++good;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_GT(good.load(), 0);
  EXPECT_THAT(Raw(socket()).ask(kEcho), HasSubstr("\"ok\": true"));
}

#if !defined(YARD_UNDER_TSAN)
TEST_F(ServerTest, RefusesAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  // The permissions let the other user in, so that the server itself has to refuse.
  start();
  Raw kept(socket());
  EXPECT_THAT(kept.ask(kEcho), HasSubstr("\"ok\": true"));
  ::chmod((folder_ / "").c_str(), 0755);
  ::chmod((folder_ / "s").c_str(), 0755);
  ::chmod(socket().c_str(), 0666);
  const std::string path = socket();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    Raw other(path);
    if (!other.connected()) ::_exit(2);
    ::_exit(other.ask(kEcho) == "closed" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(kept.ask(kEcho), HasSubstr("\"ok\": true"));
}

TEST_F(ServerTest, AForkedChildLetsGoOfItsParentsSockets) {
  start();
  auto client = std::make_unique<Raw>(socket());
  EXPECT_THAT(client->ask(kEcho), HasSubstr("\"ok\": true"));
  const std::string path = socket();
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    char byte;
    [[maybe_unused]] const ssize_t n = ::read(hold[0], &byte, 1);  // until the parent has looked
    ::_exit(0);
  }
  ::close(hold[0]);
  server_ = nullptr;
  EXPECT_EQ(client->line(), "closed");  // the child does not hold the other end
  EXPECT_FALSE(std::filesystem::exists(path));
  ::close(hold[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace yard::inspect
