// SPDX-License-Identifier: Apache-2.0
#include "inspect/socket.h"

#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace yard::inspect {
namespace {

bool set_address(sockaddr_un& to, const std::string& path) noexcept {
  to = {};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return false;
  std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
  return true;
}

}  // namespace

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

std::optional<struct ucred> peer_of(const base::File& socket) noexcept {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
    return std::nullopt;
  return peer;
}

bool wait_for(const base::File& socket, short events, Time until) noexcept {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd p = {socket.fd(), events, 0};
    const int n =
        ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left.count(), 24 * 3600 * 1000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

}  // namespace yard::inspect
