// SPDX-License-Identifier: Apache-2.0
// Unix sockets for server and client. The socket of a process is PID.sock in a directory that only
// its user can open.
#pragma once

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
// Returns the directories that may have sockets of the user: /run/user/UID/yard if the user owns
// /run/user/UID, then /tmp/yard-UID, then each /tmp/yard-UID-* that the user owns.
std::vector<std::string> directories(uid_t user, const Roots& roots = {});
// Returns the first of directories() that only this user can open, and creates it if needed. If
// somebody else has occupied all of them, returns a new /tmp/yard-UID-XXXXXX and sets `why_not` to
// what is wrong with the first.
Result<std::string> own_directory(std::string& why_not, const Roots& roots = {});
void remove_stale(const std::string& directory);
// Returns false for a symbolic link to a directory of the user.
bool is_directory_of(uid_t user, const std::string& path);

// Creates a directory that only this user can open, unless there is one. Anything else at the path
// is an error, including a symbolic link to such a directory.
Status make_directory(const std::string& path);

std::string socket_path(const std::string& directory, int64_t pid);
std::optional<int64_t> process_of(std::string_view name) noexcept;

using Time = std::chrono::steady_clock::time_point;

// The socket neither blocks nor survives exec. On failure it is empty, and errno says why.
base::File make_socket() noexcept;
// These functions return 0 or an error: ENAMETOOLONG if the path does not fit, ECONNREFUSED if no
// process listens there, EAGAIN if too many clients are waiting.
int bind_to(const base::File& socket, const std::string& path) noexcept;
int connect_to(const base::File& socket, const std::string& path) noexcept;

struct Peer {
  uid_t user = 0;
  pid_t process = 0;  // 0 if the process is in a PID namespace that is not visible here
};
std::optional<Peer> peer_of(const base::File& socket) noexcept;

// Returns the path of its executable file, or an empty string if the system does not tell.
std::string program_of(int64_t process);
// Returns when the process was started, in seconds since 1970, or 0 if the system does not tell.
double start_time_of(int64_t process);

// Waits for events of poll(). Returns false if the time is over.
bool wait_for(const base::File& socket, short events, Time until) noexcept;

}  // namespace yard::inspect
