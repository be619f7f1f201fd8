// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/log.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "terminal.h"

namespace yard::tool {
namespace {

Status cannot_read(const std::string& path, int error) {
  return Status(Code::kNotFound, fmt::format("cannot read '{}': {}", path, std::strerror(error)));
}

constexpr size_t kBuffered = 1 << 16;

struct Output {
  int fd = STDOUT_FILENO;
  struct stat file {};  // identifies the file that fd referred to at the start
  std::string buffer;
  int error = 0;  // errno of the first write that failed
  bool pipe_kills = false, finished = false;
  pid_t process = 0;
};
Output g_output;

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

// A plugin may close the descriptor and open another file with the same number.
bool is_the_same_file() {
  struct stat now {};
  return ::fstat(g_output.fd, &now) == 0 && now.st_dev == g_output.file.st_dev &&
         now.st_ino == g_output.file.st_ino;
}

// Returns the length of a colour code such as "\x1b[1;32m" at text[at], or 0 if there is none.
size_t colour_code(std::string_view text, size_t at) {
  if (text.substr(at, 2) != "\x1b[") return 0;
  const size_t end = text.find_first_not_of("0123456789;", at + 2);
  return end != text.npos && text[end] == 'm' && end - at < 12 ? end + 1 - at : 0;
}

// A plugin or kernel called exit(). Without a message the results would look complete.
void ended_by_others() {
  if (g_output.finished || ::getpid() != g_output.process) return;
  fail(kFailed, "the process was ended by exit(), called by a kernel or a plugin");
  flush_output();
  ::_exit(kFailed);
}

int finish(int code) {
  flush_output();
  g_output.finished = true;
  if (g_output.error == 0) return code;
  if (g_output.error != EPIPE)
    print_err("yard: the results cannot be written: {}\n", std::strerror(g_output.error));
  return code == kOk ? kFailed : code;
}

}  // namespace

void start_output() {
  // Open /dev/null in the wrong direction, so that reads and writes fail.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 &&
        ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      ::_exit(kFailed);
  g_output.pipe_kills = std::signal(SIGPIPE, SIG_IGN) == SIG_DFL;
  std::signal(SIGXFSZ, SIG_IGN);
  if (const int own = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); own >= 0) {
    g_output.fd = own;
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ::fstat(g_output.fd, &g_output.file);
  g_output.process = ::getpid();
  std::atexit(ended_by_others);
}

int finish_output(int code) {
  code = finish(code);
  if (g_output.error == EPIPE && g_output.pipe_kills)
    std::signal(SIGPIPE, SIG_DFL), std::raise(SIGPIPE);
  return code;
}

int finish_child_output(int code) { return finish(code); }

void flush_output() {
  if (g_output.buffer.empty()) return;
  if (g_output.error == 0)
    g_output.error = is_the_same_file() ? write_all(g_output.fd, g_output.buffer) : EBADF;
  g_output.buffer.clear();
}

bool output_is_terminal() { return ::isatty(g_output.fd) != 0; }

int output_descriptor() { return g_output.fd; }

void write_out(std::string_view text) {
  g_output.buffer += text;
  if (g_output.buffer.size() >= kBuffered) flush_output();
}

void write_escaped(std::string_view text) { write_out(escaped(text)); }

void write_err(std::string_view text) {
  flush_output();
  write_all(STDERR_FILENO, text);
}

std::string escaped(std::string_view text) {
  std::string to;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n' || text[at] == '\t') {
      to += text[at++];
    } else if (const size_t code = colour() ? colour_code(text, at) : 0; code > 0) {
      to += text.substr(at, code), at += code;
    } else {
      const size_t end = std::min(text.find_first_of("\n\t\x1b", at + 1), text.size());
      to += printable(text.substr(at, end - at), SIZE_MAX), at = end;
    }
  }
  return to;
}

std::string message_lines(std::string_view text) {
  std::string to;
  for (bool first = true;; first = false) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!first) to += line.starts_with(' ') ? "\n" : "\n  ";
    to += printable(line, SIZE_MAX);
    if (end == text.npos) return to;
    text.remove_prefix(end + 1);
  }
}

Result<std::string> read_input(const std::string& path, size_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot_read(path, errno);
  std::string text;
  char piece[1 << 15];
  ssize_t n = 0;
  while ((n = ::read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)) {
    text.append(piece, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (text.size() > most) break;
  }
  const int error = n < 0 ? errno : 0;
  ::close(fd);
  if (error != 0) return cannot_read(path, error);
  if (text.size() > most)
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: expected at most {} MiB, got more", path, most >> 20));
  return text;
}

}  // namespace yard::tool
