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

}  // namespace

size_t write_some_lines(std::string_view lines) {
  struct stat info;
  if (::fstat(STDERR_FILENO, &info) != 0) return lines.size();
  const bool is_file = S_ISREG(info.st_mode);
  // Opens the pipe or terminal again, because O_NONBLOCK on standard error itself would affect the
  // program and other processes.
  const File own(is_file ? -1
                         : ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  for (size_t done = 0; done < lines.size();) {
    // A pipe that poll() calls writable takes PIPE_BUF bytes as a whole.
    std::string_view piece = lines.substr(done, PIPE_BUF);
    if (const size_t end = piece.rfind('\n'); end != piece.npos) piece = piece.substr(0, end + 1);
    if (::send(STDERR_FILENO, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN) return done;
      if (errno != ENOTSOCK) break;
      pollfd one{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&one, 1, 0) == 0) return done;
      const int error = write_all(own ? own.fd() : STDERR_FILENO, piece);
      if (error == ETIMEDOUT) return done;
      if (error != 0) break;
    }
    done += piece.size();
  }
  return lines.size();  // errors cannot be reported anywhere
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
