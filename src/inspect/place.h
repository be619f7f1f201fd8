// SPDX-License-Identifier: Apache-2.0
// Where the sockets of a user's processes are: PID.sock in a directory that only the user can open.
#pragma once

#include <sys/types.h>
#include <yard/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace yard::inspect
