// SPDX-License-Identifier: Apache-2.0
// Unix sockets for server and client, and where those of a user's processes are: PID.sock in a directory that only the
// user can open.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace yard::inspect {

// /run/user/UID/yard where the first of these directories is the user's, then /tmp/yard-UID. The first is for new sockets;
// others may be in each, as the first may appear later.
std::vector<std::string> directories(uid_t user);

// Makes the directory, open to this user only, unless it is there. An error if it is anything else, a symbolic link to
// such a directory included.
Status make_directory(const std::string& path);

std::string socket_path(const std::string& directory, int64_t pid);
// The process of a name in such a directory; empty: it is not the name of a socket.
std::optional<int64_t> process_of(std::string_view name) noexcept;

using Time = std::chrono::steady_clock::time_point;

// A socket that neither blocks nor survives exec; empty with errno.
base::File make_socket() noexcept;
// 0 or errno; ENAMETOOLONG if the path does not fit.
int bind_to(const base::File& socket, const std::string& path) noexcept;
// ECONNREFUSED: none listens there; EAGAIN: too many wait there.
int connect_to(const base::File& socket, const std::string& path) noexcept;

// Who is at the other end, as the system tells.
struct Peer {
  uid_t user = 0;
  pid_t process = 0;  // 0 if it is in a namespace that is not visible here
};
std::optional<Peer> peer_of(const base::File& socket) noexcept;

// Waits for events of poll(); false when the time is over.
bool wait_for(const base::File& socket, short events, Time until) noexcept;

}  // namespace yard::inspect
