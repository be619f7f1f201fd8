// SPDX-License-Identifier: Apache-2.0
// Unix sockets for server and client. The socket of a process is PID.sock in a directory that only its user can open.
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

struct Roots {
  std::string run = "/run/user", temporary = "/tmp";
};
// The directories that may have sockets of the user: /run/user/UID/yard if /run/user/UID is a directory of the user,
// /tmp/yard-UID, and those of the user among /tmp/yard-UID-*.
std::vector<std::string> directories(uid_t user, const Roots& roots = {});
// The directory for sockets of this process: the first of directories() that only this user can open or that can be made. If
// somebody else was faster to make them, returns a new /tmp/yard-UID-XXXXXX and sets `why_not` to what is wrong with the first.
Result<std::string> own_directory(std::string& why_not, const Roots& roots = {});
// Removes the sockets of processes that are gone.
void remove_stale(const std::string& directory);
// Whether the path is a directory of the user, and not a symbolic link to one.
bool is_directory_of(uid_t user, const std::string& path);

// Makes the directory, which only this user can open, unless there is one. Anything else at the path is an error, also a
// symbolic link to such a directory.
Status make_directory(const std::string& path);

std::string socket_path(const std::string& directory, int64_t pid);
// Returns nothing if the name is not that of a socket.
std::optional<int64_t> process_of(std::string_view name) noexcept;

using Time = std::chrono::steady_clock::time_point;

// The socket neither blocks nor survives exec. On failure it is empty, and errno says why.
base::File make_socket() noexcept;
// These return 0 or an error: ENAMETOOLONG if the path does not fit, ECONNREFUSED if no process listens there, EAGAIN if too
// many wait there.
int bind_to(const base::File& socket, const std::string& path) noexcept;
int connect_to(const base::File& socket, const std::string& path) noexcept;

struct Peer {
  uid_t user = 0;
  pid_t process = 0;  // 0 if it is in a namespace that is not visible here
};
// Who is at the other end.
std::optional<Peer> peer_of(const base::File& socket) noexcept;

// The path of its executable file. Empty if the system does not tell.
std::string program_of(int64_t process);
// When it was started, in seconds since 1970. Returns 0 if the system does not tell.
double start_time_of(int64_t process);

// Waits for events of poll(). Returns false if there are none in time.
bool wait_for(const base::File& socket, short events, Time until) noexcept;

}  // namespace yard::inspect
