// SPDX-License-Identifier: Apache-2.0
#include "inspect/socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

constexpr std::string_view kEnding = ".sock";

int call_with(decltype(::connect)& function, const base::File& socket,
              const std::string& path) noexcept {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  while (function(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

bool is_directory_of(uid_t user, const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == user;
}

std::vector<std::string> directories(uid_t user, const Roots& roots) {
  std::vector<std::string> to;
  const std::string run = fmt::format("{}/{}", roots.run, user);
  if (is_directory_of(user, run)) to.push_back(run + "/yard");
  const std::string common = fmt::format("yard-{}", user);
  to.push_back(roots.temporary + "/" + common);
  for (const std::string& name : base::names_in(roots.temporary))
    if (const std::string path = roots.temporary + "/" + name;
        name.starts_with(common + '-') && is_directory_of(user, path))
      to.push_back(path);
  return to;
}

Result<std::string> own_directory(std::string& why_not, const Roots& roots) {
  Status first;
  std::string to;
  for (const std::string& path : directories(::geteuid(), roots)) {
    Status made = make_directory(path);
    if (made.ok()) to = path;
    if (first.ok()) first = std::move(made);
    if (!to.empty()) break;
  }
  if (to.empty()) {
    to = fmt::format("{}/yard-{}-XXXXXX", roots.temporary, ::geteuid());
    if (::mkdtemp(to.data()) == nullptr) return first;
  }
  why_not = first.message();
  return to;
}

void remove_stale(const std::string& directory) {
  for (const std::string& name : base::names_in(directory)) {
    const auto pid = process_of(name);
    const std::string path = directory + "/" + name;
    // The socket of a process in another PID namespace would accept the connection.
    if (pid && ::kill(static_cast<pid_t>(*pid), 0) != 0 && errno == ESRCH &&
        connect_to(make_socket(), path) == ECONNREFUSED)
      ::unlink(path.c_str());
  }
}

Status make_directory(const std::string& path) {
  const auto refused = [&](std::string_view got) {
    return base::invalid("invalid directory {}: expected one that only user {} can open, got {}",
                         path, ::geteuid(), got);
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return base::failure(Code::kUnsupported, "cannot make directory {}: {}", path,
                         std::strerror(errno));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return refused(std::strerror(errno));
  if (S_ISLNK(info.st_mode)) return refused("a symbolic link");
  if (!S_ISDIR(info.st_mode)) return refused("a file");
  if (info.st_uid != ::geteuid()) return refused(fmt::format("one of user {}", info.st_uid));
  // The group's bits are also the mask of an access control list.
  if ((info.st_mode & 077) != 0) return refused(fmt::format("mode {:o}", info.st_mode & 07777));
  return {};
}

std::string socket_path(const std::string& directory, int64_t pid) {
  return fmt::format("{}/{}{}", directory, pid, kEnding);
}

std::optional<int64_t> process_of(std::string_view name) noexcept {
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const auto pid = base::number<int64_t>(name);
  return pid && *pid > 0 ? pid : std::nullopt;
}

base::File make_socket() noexcept {
  return base::make_file(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

int bind_to(const base::File& socket, const std::string& path) noexcept {
  return call_with(::bind, socket, path);
}

int connect_to(const base::File& socket, const std::string& path) noexcept {
  return call_with(::connect, socket, path);
}

std::optional<Peer> peer_of(const base::File& socket) noexcept {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
    return std::nullopt;
  return Peer{peer.uid, peer.pid};
}

std::string program_of(int64_t process) {
  std::error_code unknown;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), unknown).string();
}

double start_time_of(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  // Count fields after the name, which may contain blanks. This one is in ticks since boot.
  constexpr size_t kStart = 20;
  const auto fields = base::split(std::string_view(text).substr(text.rfind(')') + 1), ' ');
  const auto ticks = fields.size() > kStart ? base::number<double>(fields[kStart]) : std::nullopt;
  struct timespec up, now;
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0 ||
      ::clock_gettime(CLOCK_REALTIME, &now) != 0)
    return 0;
  const auto seconds = [](const timespec& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  return seconds(now) - seconds(up) + *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

bool wait_for(const base::File& socket, short events, Time until) noexcept {
  constexpr int64_t kDay = 24 * 3600 * 1000;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd p = {socket.fd(), events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, kDay)));
    if (n > 0) return true;
    if (left.count() <= 0 || (n < 0 && errno != EINTR)) return false;
  }
}

}  // namespace yard::inspect
