// SPDX-License-Identifier: Apache-2.0
#include "inspect/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWaiting = 64;  // how many connections may wait for accept()
// The thread sleeps this long when memory or descriptors run out.
constexpr auto kPause = std::chrono::milliseconds(50);
// Closing the socket does not wake the thread, and another file may get its number and never be
// ready. So the thread wakes at least this often.
constexpr auto kLongestSleep = std::chrono::seconds(5);
constexpr std::string_view kOutOfMemory =
    R"({"v": 1, "ok": false, "error": {"code": "out_of_memory", "message": "out of memory"}})"
    "\n";

Status system_error(std::string_view what, const std::string& path, int error) {
  return base::failure(Code::kUnsupported, "cannot {} {}: {}", what, path, std::strerror(error));
}

// A socket that a forked child closes, because clients of the parent would otherwise wait for the
// child. If the program has closed the socket with closefrom(), another file with its number stays
// open.
class KeptSocket {
 public:
  explicit KeptSocket(base::File file) : file_(std::move(file)) {
    if (::fstat(file_.fd(), &made_) != 0) made_ = {};
  }
  ~KeptSocket() { end(); }
  KeptSocket& operator=(KeptSocket&&) = delete;

  const base::File& file() const noexcept { return file_; }
  int fd() const noexcept { return file_.fd(); }
  bool is_lost() const noexcept {
    struct stat now;
    return ::fstat(fd(), &now) != 0 || now.st_dev != made_.st_dev || now.st_ino != made_.st_ino;
  }

 private:
  void end() noexcept {
    if (is_lost()) file_.release();
    file_ = base::File();
  }
  base::File file_;
  struct stat made_ {};
  base::InChild in_child_{[this] { end(); }};
};

struct Connection {
  Connection(base::File file, const Peer& who, Clock::time_point until)
      : socket(std::move(file)), peer(who), deadline(until) {}

  KeptSocket socket;
  Peer peer;
  std::string in;   // requests that have not been handled
  std::string out;  // the answer that is being sent
  size_t sent = 0;  // bytes of `out`
  Clock::time_point deadline;
  bool ended = false;  // the client sends no more
  bool dead = false;
};

class Loop {
 public:
  Loop(Handler handler, const Limits& limits)
      : handler_(std::move(handler)), limits_(limits), listening_(make_socket()) {}

  Status listen(const std::string& directory) {
    path_ = socket_path(directory, ::getpid());
    if (listening_.fd() < 0) return system_error("make", path_, errno);
    // A socket of an ended process is replaced, but not one of another PID namespace.
    const base::File other = make_socket();
    const int refused = other ? connect_to(other, path_) : errno;
    if (refused == 0 || refused == EAGAIN)
      return base::failure(Code::kConflict, "another process answers on {}", path_);
    // Clients remove a socket that refuses them, so use another name until this one listens.
    const std::string temporary = fmt::format("{}/.{}", directory, ::getpid());
    ::unlink(temporary.c_str());
    int error = bind_to(listening_.file(), temporary);
    if (error == 0 &&
        (::chmod(temporary.c_str(), 0600) != 0 || ::listen(listening_.fd(), kWaiting) != 0 ||
         ::lstat(temporary.c_str(), &made_) != 0 ||
         ::rename(temporary.c_str(), path_.c_str()) != 0))
      error = errno;
    if (error == 0) return {};
    ::unlink(temporary.c_str());
    return system_error("listen on", path_, error);
  }

  void run() {
    while (!halted_) {
      const Status s = base::or_out_of_memory([&] { serve_all(); });
      if (base::forks() != process_) return;  // the handler has forked, and this is the child
      if (s.ok()) continue;
      base::log_event(LogLevel::kError, "inspect", "live control is out of memory and tries again");
      std::this_thread::sleep_for(kPause);
    }
    connections_.clear();
    remove_socket();
  }

  void halt() noexcept {
    halted_ = true;
    if (base::forks() != process_) return;
    if (!listening_.is_lost())
      ::shutdown(listening_.fd(), SHUT_RDWR);
    else
      connect_to(make_socket(), path_);  // wakes a thread in poll()
  }
  void remove_socket() const noexcept {
    struct stat info;
    if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == made_.st_dev &&
        info.st_ino == made_.st_ino)
      ::unlink(path_.c_str());
  }

 private:
  void serve_all() {
    polled_.assign(1, {listening_.fd(), POLLIN, 0});
    auto next = Clock::now() + kLongestSleep;
    for (const Connection& c : connections_) {
      const bool reads = c.out.empty() && !c.ended;
      polled_.push_back({c.socket.fd(), static_cast<short>(reads ? POLLIN : POLLOUT), 0});
      next = has_request(c) ? Clock::now() : std::min(next, c.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    const int timeout = static_cast<int>(std::max<int64_t>(left, 0));
    const bool failed = !listening_.is_lost() &&
                        ::poll(polled_.data(), polled_.size(), timeout) < 0 && errno != EINTR;
    if (halted_) return;
    if (failed || listening_.is_lost()) {
      halted_ = true;
      return base::log(LogLevel::kError, "inspect",
                       failed ? "live control ends: poll() failed"
                              : "live control ends: the program has closed its socket");
    }
    size_t i = 1;
    for (Connection& c : connections_) {
      serve(c, polled_[i++].revents);
      if (base::forks() != process_) return;
    }
    const auto now = Clock::now();
    connections_.remove_if([&](const Connection& c) { return c.dead || c.deadline <= now; });
    if (polled_[0].revents != 0) accept_one();
  }

  void accept_one() {
    base::File client = base::make_file(
        [&] { return ::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (!client) {
      if (errno != EAGAIN) std::this_thread::sleep_for(kPause);
      return;
    }
    const auto peer = peer_of(client);
    if (!peer || (peer->user != ::geteuid() && peer->user != 0)) {
      const std::string user = peer ? std::to_string(peer->user) : "unknown";
      base::log(LogLevel::kWarn, "inspect",
                fmt::format("live control refused a connection of user {}", user));
      return;
    }
    const auto until = Clock::now() + limits_.idle_time;
    if (connections_.size() < limits_.connections) {
      connections_.emplace_back(std::move(client), *peer, until);
      return;
    }
    const Status many(
        Code::kUnsupported, ErrorClass::kTransient,
        fmt::format("too many connections: expected at most {}", limits_.connections));
    const std::string line = answer(Request(), many) + '\n';
    ::send(client.fd(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  bool has_request(const Connection& c) const {
    return c.out.empty() && (c.in.find('\n') != c.in.npos || c.in.size() > limits_.request);
  }

  void serve(Connection& c, short events) {
    c.dead |= c.socket.is_lost();
    if (c.dead) return;
    // While a request waits, nothing more is read. This bounds `in`.
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && c.out.empty() && !has_request(c)) read(c);
    if (!c.dead && has_request(c) && !base::or_out_of_memory([&] { handle(c); }).ok()) {
      ::send(c.socket.fd(), kOutOfMemory.data(), kOutOfMemory.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      c.dead = true;
    }
    if (!c.dead && !c.out.empty()) write(c);
    if (c.out.empty() && c.ended && !has_request(c)) c.dead = true;
  }

  void read(Connection& c) {
    char buffer[size_t{8} << 10];
    const ssize_t n = ::recv(c.socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) {
      c.ended = n == 0;
      c.dead = n < 0 && errno != EAGAIN && errno != EINTR;
      return;
    }
    const bool first = c.in.empty();
    c.in.append(buffer, static_cast<size_t>(n));
    if (first) set_deadline(c);
  }

  void handle(Connection& c) {
    const size_t end = std::min(c.in.find('\n'), c.in.size());
    std::string line = c.in.substr(0, end);
    c.in.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    set_deadline(c);
    if (line.empty()) return;
    Request request;
    c.out = answer(request, run(c, line, request));
    if (c.out.size() > limits_.answer)
      c.out = answer(
          request, base::failure(Code::kUnsupported, "the answer has {} bytes, at most {} are sent",
                                 c.out.size(), limits_.answer));
    c.out += '\n';
    c.sent = 0;
    set_deadline(c);
  }

  Result<std::string> run(Connection& c, std::string_view line, Request& request) try {
    if (line.size() <= limits_.request) {
      YARD_RETURN_IF_ERROR(parse_request(line, request));
      return handler_(request, c.peer);
    }
    c.ended = true;
    c.in.clear();
    return base::invalid("invalid request: expected at most {} bytes on a line, got more",
                         limits_.request);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& e) {
    return Status(Code::kInternal, base::exception_text(e));
  }

  void write(Connection& c) const {
    const ssize_t n = ::send(c.socket.fd(), c.out.data() + c.sent, c.out.size() - c.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      c.dead = errno != EAGAIN && errno != EINTR;
      return;
    }
    c.sent += static_cast<size_t>(n);
    if (c.sent < c.out.size()) return;
    c.out = {};  // frees the memory of a large answer
    set_deadline(c);
  }

  void set_deadline(Connection& c) const {
    c.deadline = Clock::now() + (!c.out.empty()  ? limits_.answer_time
                                 : !c.in.empty() ? limits_.request_time
                                                 : limits_.idle_time);
  }

  const Handler handler_;
  const Limits limits_;
  KeptSocket listening_;
  const uint64_t process_ = base::forks();
  std::atomic<bool> halted_{false};
  std::vector<pollfd> polled_;
  std::string path_;
  struct stat made_ = {};
  std::list<Connection> connections_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const std::string& directory, Handler handler,
                                              const Limits& limits) {
  YARD_RETURN_IF_ERROR(make_directory(directory));
  // Children that ended with _exit() and killed processes leave sockets behind.
  remove_stale(directory);
  auto loop = std::make_shared<Loop>(std::move(handler), limits);
  YARD_RETURN_IF_ERROR(loop->listen(directory));
  std::unique_ptr<Server> server(new Server([loop] { loop->halt(); }));
  if (Status started = server->thread_.post([loop] { loop->run(); }); !started.ok()) {
    loop->remove_socket();
    return started;
  }
  return server;
}

}  // namespace yard::inspect
