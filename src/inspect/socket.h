// SPDX-License-Identifier: Apache-2.0
// Unix sockets for server and client.
#pragma once

#include <sys/socket.h>
#include <yard/result.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/file.h"

namespace yard::inspect {

using Time = std::chrono::steady_clock::time_point;

// A socket that neither blocks nor survives exec; empty with errno.
base::File make_socket() noexcept;
// 0 or errno; ENAMETOOLONG if the path does not fit.
int bind_to(const base::File& socket, const std::string& path) noexcept;
// ECONNREFUSED: none listens there; EAGAIN: too many wait there.
int connect_to(const base::File& socket, const std::string& path) noexcept;

// Who is at the other end.
std::optional<struct ucred> peer_of(const base::File& socket) noexcept;

// Waits for events of poll(); false when the time is over.
bool wait_for(const base::File& socket, short events, Time until) noexcept;

}  // namespace yard::inspect
