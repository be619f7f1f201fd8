// SPDX-License-Identifier: Apache-2.0
#include "base/stderr_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <string>

#include "base/file.h"

namespace yard::base {
namespace {

std::atomic<uint64_t> g_dropped{0};  // lines

// Opens the pipe or terminal behind standard error again. The new descriptor can have O_NONBLOCK,
// which would concern the program and other processes if it were set on standard error itself.
File open_without_waiting() {
  return File(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

// Returns 0 or an error, which is ETIMEDOUT if the write would have to wait. `again` is standard
// error opened again, or nothing. A piece has at most PIPE_BUF bytes, which a pipe takes as a whole
// when poll() says that it takes any.
int write_now(const File& again, std::string_view piece) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (::send(STDERR_FILENO, piece.data(), piece.size(), kFlags) >= 0) return 0;
  if (errno != ENOTSOCK) return errno == EAGAIN ? ETIMEDOUT : errno;
  pollfd one{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&one, 1, 0) == 0) return ETIMEDOUT;
  return write_all(again ? again.fd() : STDERR_FILENO, piece);
}

}  // namespace

size_t write_some_lines(std::string_view lines) {
  struct stat info;
  if (::fstat(STDERR_FILENO, &info) != 0) return lines.size();
  if (S_ISREG(info.st_mode)) {
    write_all(STDERR_FILENO, lines);  // there is nowhere to report an error
    return lines.size();
  }
  const bool can_wait = S_ISFIFO(info.st_mode) || ::isatty(STDERR_FILENO) != 0;
  const File again = can_wait ? open_without_waiting() : File();
  for (size_t done = 0; done < lines.size();) {
    std::string_view piece = lines.substr(done, PIPE_BUF);
    if (const size_t end = piece.rfind('\n'); end != piece.npos) piece = piece.substr(0, end + 1);
    const int error = write_now(again, piece);
    if (error == ETIMEDOUT) return done;
    if (error != 0) break;
    done += piece.size();
  }
  return lines.size();
}

void count_dropped_lines(std::string_view lines) noexcept {
  g_dropped.fetch_add(static_cast<uint64_t>(std::ranges::count(lines, '\n')));
}

void write_or_drop_lines(std::string_view lines) {
  const uint64_t dropped = g_dropped.exchange(0);
  if (dropped == 0 && lines.empty()) return;
  const std::string notice =
      dropped == 0
          ? ""
          : fmt::format("yard: {} lines were dropped, because standard error took no more\n",
                        dropped);
  const size_t done = write_some_lines(notice + std::string(lines));
  if (done < notice.size()) g_dropped.fetch_add(dropped);
  count_dropped_lines(lines.substr(std::max(done, notice.size()) - notice.size()));
}

}  // namespace yard::base
