// SPDX-License-Identifier: Apache-2.0
#include "inspect/socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace yard::inspect {
namespace {

constexpr std::string_view kEnding = ".sock";

bool is_directory_of(uid_t user, const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == user;
}

bool set_address(sockaddr_un& to, const std::string& path) noexcept {
  to = {};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return false;
  std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
  return true;
}

}  // namespace

std::vector<std::string> directories(uid_t user) {
  std::vector<std::string> to;
  const std::string run = fmt::format("/run/user/{}", user);
  if (is_directory_of(user, run)) to.push_back(run + "/yard");
  to.push_back(fmt::format("/tmp/yard-{}", user));
  return to;
}

Status make_directory(const std::string& path) {
  const auto refused = [&](std::string_view got) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("invalid directory {}: expected one that only user {} can open, got {}", path,
                    ::geteuid(), got));
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(Code::kUnsupported,
                  fmt::format("cannot make directory {}: {}", path, std::strerror(errno)));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return refused(std::strerror(errno));
  if (S_ISLNK(info.st_mode)) return refused("a symbolic link");
  if (!S_ISDIR(info.st_mode)) return refused("a file");
  if (info.st_uid != ::geteuid()) return refused(fmt::format("one of user {}", info.st_uid));
  // The bits of the group are also the mask of an access control list.
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
  return base::File(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int bind_to(const base::File& socket, const std::string& path) noexcept {
  sockaddr_un address;
  if (!set_address(address, path)) return ENAMETOOLONG;
  return ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0
             ? 0
             : errno;
}

int connect_to(const base::File& socket, const std::string& path) noexcept {
  sockaddr_un address;
  if (!set_address(address, path)) return ENAMETOOLONG;
  while (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

std::optional<Peer> peer_of(const base::File& socket) noexcept {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
    return std::nullopt;
  return Peer{peer.uid, peer.pid};
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
