// SPDX-License-Identifier: Apache-2.0
#include "http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <system_error>
#include <utility>
#include <vector>

namespace yard::metrics_detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 64, kMostRequest = 8192;
constexpr auto kRequestTime = std::chrono::seconds(2);   // from connecting to the complete request
constexpr auto kAnswerTime = std::chrono::seconds(10);   // until the client has received the answer
constexpr auto kPause = std::chrono::milliseconds(100);  // after accept() has failed

std::string http(std::string_view status, std::string_view text) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, text.size(), text);
}

}  // namespace

class HttpServer::Loop {
  // Owns a descriptor of at least 3, because the program may have closed stdout.
  class Descriptor {
   public:
    explicit Descriptor(int fd = -1) : fd_(fd) {
      if (fd < 0 || fd > STDERR_FILENO) return;
      fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      ::close(fd);
    }
    ~Descriptor() {
      if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor other) noexcept {
      std::swap(fd_, other.fd_);
      return *this;
    }
    int fd() const { return fd_; }

   private:
    int fd_;
  };

  struct Connection {
    Descriptor socket;
    Clock::time_point deadline;
    std::string in, out;
    size_t sent = 0;  // bytes of `out`
    bool dead = false;

    bool has_answer() const { return !out.empty(); }
    bool is_sent() const { return has_answer() && sent == out.size(); }
  };

 public:
  Loop(std::string path, Page page) : path_(std::move(path)), page_(std::move(page)) {}

  Status listen(Address& address) {
    sockaddr_storage at;
    socklen_t size = socket_address(address, at);
    const auto failed = [&](int error) {
      return Status(Code::kConflict,
                    fmt::format("cannot listen on {}: {}", address.text(), std::strerror(error)));
    };
    constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    listening_ = Descriptor(::socket(at.ss_family, kFlags, 0));
    const int on = 1;
    auto* const to = reinterpret_cast<sockaddr*>(&at);
    if (wake_.fd() < 0 || listening_.fd() < 0 ||
        ::setsockopt(listening_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(listening_.fd(), to, size) != 0 || ::listen(listening_.fd(), 128) != 0 ||
        ::getsockname(listening_.fd(), to, &size) != 0)
      return failed(errno);
    address.port = ntohs(address.v6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                    : reinterpret_cast<sockaddr_in&>(at).sin_port);
    return {};
  }

  void run() {
    for (;;) try {
        if (!step()) return;
      } catch (const std::exception&) {  // out of memory
        connections_.clear();
        paused_until_ = Clock::now() + kPause;
      }
  }

  void halt() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.fd(), &one, sizeof one);
  }
  void close_listening() { listening_ = Descriptor(), wake_ = Descriptor(); }

 private:
  // Waits for events and handles them. Returns false when the server must stop.
  bool step() {
    const auto now = Clock::now();
    std::vector<pollfd> polled = {{wake_.fd(), POLLIN, 0},
                                  {now < paused_until_ ? -1 : listening_.fd(), POLLIN, 0}};
    auto next = now < paused_until_ ? paused_until_ : Clock::time_point::max();
    for (const Connection& c : connections_) {
      const bool writes = c.has_answer() && !c.is_sent();
      polled.push_back({c.socket.fd(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      next = std::min(next, c.deadline);
    }
    int timeout = -1;
    if (next != Clock::time_point::max())
      timeout = static_cast<int>(std::clamp<int64_t>(
          std::chrono::ceil<std::chrono::milliseconds>(next - now).count(), 0, 60'000));
    if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) return false;
    if (polled[0].revents != 0) return false;
    size_t i = 2;
    for (Connection& c : connections_)
      if (polled[i++].revents != 0) serve(c);
    const auto then = Clock::now();
    connections_.remove_if([&](const Connection& c) { return c.dead || c.deadline <= then; });
    if (polled[1].revents != 0) accept_one();
    return true;
  }

  void accept_one() {
    Descriptor client(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.fd() < 0) {
      if (errno != EAGAIN && errno != ECONNABORTED) paused_until_ = Clock::now() + kPause;
      return;
    }
    if (connections_.size() >= kMostConnections) connections_.pop_front();
    connections_.push_back({std::move(client), Clock::now() + kRequestTime, {}, {}});
  }

  void serve(Connection& c) {
    if (!c.has_answer() || c.is_sent()) read(c);
    if (c.dead || c.is_sent()) return;
    if (!c.has_answer()) {
      c.out = answer(c.in);
      if (!c.has_answer()) return;
      c.deadline = Clock::now() + kAnswerTime;
    }
    const ssize_t n = ::send(c.socket.fd(), c.out.data() + c.sent, c.out.size() - c.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) c.dead = errno != EAGAIN && errno != EINTR;
    if (n > 0) c.sent += static_cast<size_t>(n);
    // Read the rest of the request first, because closing now would discard the answer.
    if (c.is_sent()) ::shutdown(c.socket.fd(), SHUT_WR), c.deadline = Clock::now() + kRequestTime;
  }

  static void read(Connection& c) {
    char piece[4096];
    const ssize_t n = ::recv(c.socket.fd(), piece, sizeof piece, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) c.dead = true;
    if (n > 0 && !c.has_answer()) c.in.append(piece, static_cast<size_t>(n));
  }

  // Returns an empty text while the request is incomplete.
  std::string answer(std::string_view request) const {
    const size_t line = request.find('\n');
    const bool complete =
        request.find("\r\n\r\n") != request.npos || request.find("\n\n") != request.npos;
    if (!complete) {
      if (request.size() <= kMostRequest) return {};
      return http("431 Request Header Fields Too Large", "The request is too long.\n");
    }
    std::string_view words = request.substr(0, line);
    const size_t method = words.find(' '), target = words.find(' ', method + 1);
    if (method == words.npos || target == words.npos ||
        !words.substr(target + 1).starts_with("HTTP/1."))
      return http("400 Bad Request", "Expected a request of HTTP 1.\n");
    const std::string_view path = words.substr(method + 1, target - method - 1);
    if (path.substr(0, path.find('?')) != path_)
      return http("404 Not Found", fmt::format("The only page is {}.\n", path_));
    words = words.substr(0, method);
    if (words != "GET" && words != "HEAD")
      return http("405 Method Not Allowed", "Expected GET or HEAD.\n");
    const Result<std::string> page = page_();
    if (!page.ok()) return http("500 Internal Server Error", page.status().to_string() + '\n');
    std::string to = http("200 OK", *page);
    if (words == "HEAD") to.resize(to.size() - page->size());
    return to;
  }

  const std::string path_;
  const Page page_;
  Descriptor wake_, listening_;
  std::list<Connection> connections_;  // oldest first
  Clock::time_point paused_until_{};
};

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)), process_(::getpid()) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(Address& address, std::string path,
                                                      Page page) {
  auto loop = std::make_unique<Loop>(std::move(path), std::move(page));
  if (Status listens = loop->listen(address); !listens.ok()) return listens;
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(loop)));
  sigset_t all, before;  // only the program's threads handle signals
  ::sigfillset(&all);
  for (const int failure : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, failure);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status started;
  try {
    server->thread_ = std::thread([loop = server->loop_.get()] { loop->run(); });
  } catch (const std::system_error& e) {
    started = Status(Code::kUnsupported, fmt::format("no thread can be started: {}", e.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started.ok()) return started;
  return server;
}

HttpServer::~HttpServer() {
  if (process_ != ::getpid()) {
    // The fork may have happened while the server's thread changed the list of connections.
    loop_.release()->close_listening();
    static_cast<void>(new std::thread(std::move(thread_)));
  } else if (thread_.joinable()) {
    loop_->halt();
    thread_.join();
  }
}

}  // namespace yard::metrics_detail
