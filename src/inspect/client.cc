// SPDX-License-Identifier: Apache-2.0
// The client (yard/inspect.h).
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/inspect.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/results.h"
#include "inspect/protocol.h"
#include "inspect/socket.h"

namespace yard {
namespace {

using Clock = std::chrono::steady_clock;
using inspect::Time;

constexpr const char* kClosed = "process {} has closed the connection";

// Connects, and checks that the other end is this process of this user.
Result<base::File> open(const std::string& path, uid_t user, int64_t pid, Time until) {
  base::File socket = inspect::make_socket();
  int error = socket ? inspect::connect_to(socket, path) : errno;
  while (error == EAGAIN && Clock::now() < until) {  // too many clients are waiting
    ::usleep(1000);
    error = inspect::connect_to(socket, path);
  }
  if (error != 0)
    return base::failure(error == EAGAIN ? Code::kDeadline : Code::kNotFound,
                         "process {} does not answer on {}: {}", pid, path, std::strerror(error));
  const auto peer = inspect::peer_of(socket);
  if (peer && peer->user == user && peer->process == pid) return socket;
  return base::invalid(
      "invalid socket {}: expected process {} of user {}, got process {} of user {}", path, pid,
      user, peer ? peer->process : 0, peer ? static_cast<int64_t>(peer->user) : -1);
}

// Root may name a process of any user.
Result<base::File> open_process(int64_t pid, Time until) {
  std::vector<uid_t> users = {::geteuid()};
  struct stat info;
  if (users[0] == 0 && ::stat(fmt::format("/proc/{}", pid).c_str(), &info) == 0 && info.st_uid != 0)
    users.push_back(info.st_uid);
  Status first;
  for (const uid_t user : users)
    for (const std::string& directory : inspect::directories(user)) {
      auto socket = open(inspect::socket_path(directory, pid), user, pid, until);
      if (socket.ok()) return socket;
      // Prefer an error that says more than that a socket is missing.
      if (first.ok() || socket.status().code() != Code::kNotFound) first = socket.status();
    }
  if (first.code() == Code::kNotFound)
    first.note(
        "a process answers from its first call on, unless YARD_INSPECT is off or it is privileged");
  return first;
}

Status send_line(const base::File& socket, std::string line, int64_t pid, Time until) {
  line += '\n';
  for (size_t sent = 0; sent < line.size();) {
    if (!inspect::wait_for(socket, POLLOUT, until))
      return base::failure(Code::kDeadline, "process {} does not read the request", pid);
    const ssize_t n =
        ::send(socket.fd(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
      sent += static_cast<size_t>(n);
    else if (errno == EPIPE || errno == ECONNRESET)
      return {};  // the process may have answered before closing the connection
    else if (errno != EAGAIN && errno != EINTR)
      return base::failure(Code::kNotFound, kClosed, pid);
  }
  return {};
}

Result<std::string> read_line(const base::File& socket, int64_t pid, Time until) {
  std::string line;
  char buffer[size_t{16} << 10];
  while (line.size() <= kInspectMostAnswer) {
    if (!inspect::wait_for(socket, POLLIN, until))
      return base::failure(Code::kDeadline, "process {} has not answered in time", pid);
    const ssize_t n = ::recv(socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return base::failure(Code::kNotFound, kClosed, pid);
    const std::string_view read(buffer, static_cast<size_t>(n));
    line += read.substr(0, read.find('\n'));
    if (read.find('\n') != read.npos) return line;
  }
  return base::invalid("invalid answer of process {}: expected at most {} bytes, got more", pid,
                       kInspectMostAnswer);
}

}  // namespace

std::vector<InspectClient::Target> inspect_targets(std::chrono::nanoseconds timeout) {
  using std::chrono::system_clock;
  const uid_t user = ::geteuid();
  const Time until = Clock::now() + timeout;
  const std::string hello =
      fmt::format(R"({{"v": {}, "id": 0, "command": "hello"}})", kInspectVersion);
  std::vector<std::pair<InspectClient::Target, Result<base::File>>> asked;
  for (const std::string& directory : inspect::directories(user)) {
    if (!inspect::is_directory_of(user, directory)) continue;
    inspect::remove_stale(directory);
    for (const std::string& name : base::names_in(directory)) {
      const auto pid = inspect::process_of(name);
      if (!pid) continue;
      InspectClient::Target t{*pid, inspect::program_of(*pid), directory + "/" + name, {}, {}, {}};
      const std::chrono::duration<double> started(inspect::start_time_of(*pid));
      t.started += std::chrono::duration_cast<system_clock::duration>(started);
      auto socket = open(t.socket, user, *pid, Clock::now());
      if (socket.ok())
        if (Status sent = send_line(*socket, hello, *pid, Clock::now()); !sent.ok())
          socket = std::move(sent);
      // If nothing listens on the socket file, the process number now belongs to another process.
      if (socket.ok() || socket.status().code() == Code::kDeadline)
        asked.emplace_back(std::move(t), std::move(socket));
    }
  }
  std::vector<InspectClient::Target> to;
  for (auto& [target, socket] : asked) {
    auto line = socket.ok() ? read_line(*socket, target.pid, until) : socket.status();
    target.problem = line.status().message();
    if (line.ok()) target.hello = *std::move(line);
    to.push_back(std::move(target));
  }
  std::ranges::sort(to, {}, &InspectClient::Target::pid);
  return to;
}

Result<InspectClient> InspectClient::connect(int64_t pid, std::chrono::nanoseconds timeout) {
  if (pid <= 0 || pid > INT32_MAX)
    return base::invalid("invalid process: expected a number above 0, got {}", pid);
  YARD_RETURN_IF_ERROR(open_process(pid, Clock::now() + timeout).status());
  return InspectClient(pid, timeout);
}

// Each request opens a connection, because the server closes idle ones after a minute.
Result<std::string> InspectClient::request(std::string_view json) {
  if (json.size() > kInspectMostRequest || json.find('\n') != json.npos)
    return base::invalid("invalid request: expected one line of at most {} bytes, got {} bytes",
                         kInspectMostRequest, json.size());
  const Time until = Clock::now() + timeout_;
  YARD_ASSIGN_OR_RETURN(const base::File socket, open_process(pid_, until));
  YARD_RETURN_IF_ERROR(send_line(socket, std::string(json), pid_, until));
  return read_line(socket, pid_, until);
}

}  // namespace yard
