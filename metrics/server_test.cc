// SPDX-License-Identifier: Apache-2.0
// Tests the server, and the figures of a live runtime from many threads, across reloads and a fork.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace yard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

#define SKIP_WITHOUT_PROMETHEUS()                                           \
  if (const Result<std::string> yard_text_ = metrics_text({});              \
      !yard_text_.ok() && yard_text_.status().code() == Code::kUnsupported) \
  GTEST_SKIP() << yard_text_.status().message()

RuntimeSettings quiet() {
  RuntimeSettings s;
  s.environment = false;
  return s;
}

void call_softmax(Runtime& runtime, int64_t rows, int times) {
  std::vector<float> in(static_cast<size_t>(rows) * 8, 1.0f), out(in.size());
  const TensorView x(in.data(), DType::f32, {rows, 8}), to(out.data(), DType::f32, {rows, 8});
  for (int i = 0; i < times; ++i) runtime.call("softmax", {to, x}).or_throw();
}

// Returns all that the server sends until it closes the connection, or an empty text if the server
// cannot be reached.
std::string answer(const std::string& address, const std::string& request, bool wait = true) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string text;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char piece[4096];
    for (ssize_t n = 1; wait && n > 0;) {
      n = ::recv(fd, piece, sizeof piece, 0);
      if (n > 0) text.append(piece, static_cast<size_t>(n));
    }
  }
  ::close(fd);
  return text;
}

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

double scraped(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  double sum = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + "{") || line.starts_with(name + " "))
      sum += std::strtod(line.c_str() + line.rfind(' '), nullptr);
  return sum;
}

MetricsServerSettings any_port() {
  MetricsServerSettings s;
  s.address = "127.0.0.1:0";
  return s;
}

TEST(MetricsServer, AnswersWithTheExactNumberOfCalls) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  constexpr int kThreads = 8, kCalls = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] { call_softmax(runtime, 1 + t % 3, kCalls); });
  for (int i = 0; i < 5; ++i) {  // reload and scrape at the same time
    Config config;
    if (i % 2 == 0) config.kernel_locks["softmax"].id = "reference.cpp";
    runtime.rules().set(config).or_throw();
    EXPECT_THAT(answer(server->address(), kGet), StartsWith("HTTP/1.1 200"));
  }
  for (std::thread& t : threads) t.join();
  const std::string text = answer(server->address(), kGet);
  EXPECT_EQ(scraped(text, "yard_calls_total"), kThreads * kCalls);
  EXPECT_EQ(scraped(text, "yard_cache_hits_total") + scraped(text, "yard_cache_misses_total"),
            kThreads * kCalls);
  EXPECT_EQ(scraped(text, "yard_reloads_total"), 5);
  EXPECT_THAT(text, HasSubstr("\nyard_reloads_total{result=\"applied\"} 5\n"));
  EXPECT_GT(scraped(text, "yard_call_seconds_count"), 0);
  EXPECT_THAT(text, HasSubstr("op=\"softmax\",kernel=\"reference.cpp\""));
  runtime.reset_stats();
  EXPECT_EQ(scraped(answer(server->address(), kGet), "yard_calls_total"), 0);
}

TEST(MetricsServer, AForkedChildStartsAtZeroAndHasAServerOfItsOwn) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok());
  call_softmax(runtime, 2, 100);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    call_softmax(runtime, 2, 7);
    Result<MetricsServer> own = MetricsServer::start(runtime, any_port());
    if (!own.ok()) ::_exit(1);
    const double calls = scraped(answer(own->address(), kGet), "yard_calls_total");
    {
      const MetricsServer gone = std::move(*server);
    }  // the child does not wait for threads that it does not have
    ::_exit(calls == 7 ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(scraped(answer(server->address(), kGet), "yard_calls_total"), 100);
}

TEST(MetricsServer, RefusesOtherInterfacesUnlessAsked) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  MetricsServerSettings s;
  s.address = "0.0.0.0:0";
  const Result<MetricsServer> refused = MetricsServer::start(runtime, s);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().to_string(),
              HasSubstr("invalid address: expected one of the loopback interface"));
  s.allow_remote = true;
  EXPECT_TRUE(MetricsServer::start(runtime, s).ok());
  s.address = "127.0.0.1:80,0.0.0.0:81";
  EXPECT_FALSE(MetricsServer::start(runtime, s).ok());
}

TEST(MetricsServer, AnAddressInUseIsAnError) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  const Result<MetricsServer> first = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(first.ok());
  MetricsServerSettings s;
  s.address = first->address();
  const Result<MetricsServer> second = MetricsServer::start(runtime, s);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().to_string(), HasSubstr("Address already in use"));
}

TEST(MetricsServer, SurvivesGarbage) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  call_softmax(runtime, 2, 3);
  const Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok());
  const std::string garbage[] = {
      std::string(100000, '\0'),
      std::string(100000, 'A'),
      "GET " + std::string(100000, '/') + " HTTP/1.1\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "GET /../../etc/passwd HTTP/1.0\r\n\r\n",
      "\x16\x03\x01\x02\x01\x01\xfc\x03\x03",
      "GET /metrics HTTP/1.1\r\n" + std::string(200, ' ') + "\r\nX: \xff\xfe\r\n\r\n"};
  for (const std::string& g : garbage) {
    EXPECT_THAT(answer(server->address(), g + "\r\n\r\n"), Not(HasSubstr("root:")));
    answer(server->address(), g, false);  // closes before the answer
  }
  EXPECT_EQ(scraped(answer(server->address(), kGet), "yard_calls_total"), 3);
}

TEST(MetricsServer, AnswersAsHttpAsksFor) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  call_softmax(runtime, 2, 3);
  const Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok());
  const auto asked = [&](const std::string& line) {
    return answer(server->address(), line + "\r\nHost: x\r\n\r\n");
  };
  EXPECT_THAT(asked("GET /metrics?now HTTP/1.0"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string head = asked("HEAD /metrics HTTP/1.1"), get = asked("GET /metrics HTTP/1.1");
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(get, StartsWith(head.substr(0, head.find("Content-Length"))));
  EXPECT_THAT(get, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(asked("GET / HTTP/1.1"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(asked("POST /metrics HTTP/1.1"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(asked("GET /metrics"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(asked(std::string(20000, 'A')), StartsWith("HTTP/1.1 431"));
}

// Keeps connections open after sending `text`.
class Silent {
 public:
  Silent(const std::string& address, int count, const std::string& text) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ::connect(sockets_.back(), reinterpret_cast<sockaddr*>(&to), sizeof to);
      ::send(sockets_.back(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
  ~Silent() {
    for (const int s : sockets_) ::close(s);
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  bool closed() const {
    return std::ranges::all_of(sockets_, [](int s) {
      char byte;
      return ::recv(s, &byte, 1, MSG_DONTWAIT) == 0;
    });
  }

 private:
  std::vector<int> sockets_;
};

TEST(MetricsServer, IdleConnectionsKeepNobodyWaiting) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  call_softmax(runtime, 2, 3);
  const Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok());
  for (const char* text : {"", "GET /met"}) {
    const Silent silent(server->address(), 50, text);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(scraped(answer(server->address(), kGet), "yard_calls_total"), 3);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    for (int i = 0; i < 200 && !silent.closed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(silent.closed()) << "they have a deadline";
  }
  // The server keeps fewer connections than this and closes the oldest.
  const Silent many(server->address(), 300, "GET /met");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(scraped(answer(server->address(), kGet), "yard_calls_total"), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

// Returns the exit code and output of promtool, or 127 if promtool is not installed.
std::pair<int, std::string> promtool(const std::string& text) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("yard-prom-" + std::to_string(::getpid())))
          .string();
  std::ofstream(file) << text;
  FILE* pipe = ::popen(("promtool check metrics < " + file + " 2>&1").c_str(), "r");
  std::string said;
  for (std::array<char, 256> line{}; std::fgets(line.data(), line.size(), pipe) != nullptr;)
    said += line.data();
  const int status = ::pclose(pipe);
  std::filesystem::remove(file);
  return {WEXITSTATUS(status), said};
}

TEST(MetricsServer, PromtoolAcceptsALiveScrape) {
  SKIP_WITHOUT_PROMETHEUS();
  if (promtool("").first == 127)
    GTEST_SKIP() << "promtool is not installed: apt install prometheus";
  Runtime runtime(quiet());
  call_softmax(runtime, 2, 1000);
  runtime.call("softmax", {}).ignore();
  const Result<MetricsServer> server = MetricsServer::start(runtime, any_port());
  ASSERT_TRUE(server.ok());
  answer(server->address(), kGet);
  std::string text = answer(server->address(), kGet);
  text = text.substr(text.find("\r\n\r\n") + 4);
  const auto [code, said] = promtool(text);
  EXPECT_EQ(code, 0) << said;
  EXPECT_EQ(said, "");
  EXPECT_NE(promtool("yard_x{} not a number\n").first, 0);
}

TEST(MetricsFile, IsReplacedAsAWhole) {
  SKIP_WITHOUT_PROMETHEUS();
  Runtime runtime(quiet());
  call_softmax(runtime, 2, 3);
  std::string folder = (std::filesystem::temp_directory_path() / "yard-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/yard.prom";
  for (int i = 0; i < 2; ++i) write_metrics(runtime, path).or_throw();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(scraped(text, "yard_calls_total"), 3);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path(), path);
    ++files;
  }
  EXPECT_EQ(files, 1);
  using std::filesystem::perms;
  EXPECT_NE(std::filesystem::status(path).permissions() & perms::others_read, perms::none);
  EXPECT_THAT(write_metrics(runtime, folder + "/none/yard.prom").to_string(),
              HasSubstr("cannot write"));
  // A file size limit must be an error, and the old file must stay.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{10, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THAT(write_metrics(runtime, path).to_string(), HasSubstr("File too large"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_GT(std::filesystem::file_size(path), 100u);
  std::filesystem::create_directory(folder + "/taken");
  EXPECT_FALSE(write_metrics(runtime, folder + "/taken").ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace yard
