// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#define OPENSSL_SUPPRESS_DEPRECATED  // see finish()
#include <openssl/sha.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/mutex.h"
#include "base/trusted_path.h"

namespace yard::base {
namespace {

constexpr int kPatienceMs = 2000;  // for a pipe or device that accepts nothing

struct Target {
  std::string path;            // of the file itself, links followed; it may be missing
  bool in_place = false;       // a pipe or device, which cannot be replaced
  std::optional<mode_t> mode;  // of an OwnFile that exists
  std::string problem;         // why it cannot be written
};

void check_own(const std::string& path, const OwnFile& kind, Target& target) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return;
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  char start[4096];
  const ssize_t n = file ? file.read_at(start, sizeof start, 0) : -1;
  const char* const found = S_ISLNK(info.st_mode) ? "a symbolic link" : "another file";
  if (n < 0 && !S_ISLNK(info.st_mode))
    target.problem = std::strerror(errno);
  else if (n != 0 && (n < 0 || !kind.is({start, static_cast<size_t>(n)})))
    target.problem = fmt::format("it is {}; expected {} or a new file", found, kind.what);
  target.mode = info.st_mode & 0777;
}

Target resolve(const std::string& path, const OwnFile* kind) {
  Target target;
  target.path = path;
  std::string real;
  follow(path, real, [&](const PathEntry& at) {
    if (at.last && !S_ISLNK(at.info.st_mode)) target.path = at.path;
    return true;
  });
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) {
    if (errno != ENOENT) target.problem = std::strerror(errno);
  } else if (S_ISDIR(there.st_mode)) {
    target.problem = std::strerror(EISDIR);
  } else if (S_ISBLK(there.st_mode)) {
    target.problem = "it is a disk or another block device; expected a file";
  } else if (S_ISSOCK(there.st_mode)) {
    target.problem = "it is a socket; expected a file";
  } else if (!S_ISREG(there.st_mode) || ::stat(target.path.c_str(), &there) != 0) {
    // A regular file without a name is a deleted one, reached through /proc.
    target.in_place = true, target.path = path;
  }
  if (kind != nullptr && target.problem.empty() && !target.in_place) check_own(path, *kind, target);
  return target;
}

// Opens without blocking: opening a pipe without readers would block forever.
std::string write_in_place(const std::string& path, std::string_view content) {
  const File file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = file ? write_all(file.fd(), content, kPatienceMs) : errno;
  return error == 0           ? ""
         : error == ENXIO     ? "it is a pipe without a reader"
         : error == ETIMEDOUT ? "it is a pipe or device that accepts no data"
                              : std::strerror(error);
}

// Writes a temporary file beside the target and renames it. Without `content` it creates that only.
std::string replace_file(const Target& target, const std::string_view* content, mode_t mode) {
  static std::atomic<unsigned> count{0};
  const std::string temporary = fmt::format("{}.new.{}.{}", target.path, ::getpid(), ++count);
  const File file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return std::strerror(errno);
  int error = 0;
  if (content != nullptr) {
    if (target.mode && ::fchmod(file.fd(), *target.mode) != 0) error = errno;
    if (error == 0) error = write_all(file.fd(), *content, kPatienceMs);
    // EINVAL: a file system that cannot sync.
    if (error == 0 && ::fsync(file.fd()) != 0 && errno != EINVAL) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), target.path.c_str()) == 0) return {};
    if (error == 0) error = errno;
  }
  ::unlink(temporary.c_str());
  return error == 0 ? "" : std::strerror(error);
}

// Without `content` this only tries whether the file can be written.
Status write(const std::string& path, const std::string_view* content, mode_t mode,
             const OwnFile* kind) {
  const Target target = resolve(path, kind);
  std::string problem = target.problem;
  if (problem.empty() && !target.in_place)
    problem = replace_file(target, content, mode);
  else if (problem.empty() && content != nullptr)
    problem = write_in_place(path, *content);
  else if (problem.empty() && ::access(path.c_str(), W_OK) != 0)
    problem = std::strerror(errno);  // not opened, because the reader of a pipe would notice
  if (problem.empty()) return {};
  return Status(Code::kNotFound, fmt::format("{}: cannot be written: {}", path, problem));
}

// The SHA256 functions cannot fail. Those of EVP would keep state for the process, which OpenSSL
// frees at exit while threads of the library still run.
std::string finish(SHA256_CTX& context) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &context);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

int File::moved_up(int fd) noexcept {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

ssize_t File::read_at(void* to, size_t size, off_t offset) const noexcept {
  size_t done = 0;
  while (done < size) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(to) + done, size - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

int write_all(int fd, std::string_view bytes, int patience_ms) {
  sigset_t both, before;
  ::sigemptyset(&both), ::sigaddset(&both, SIGPIPE), ::sigaddset(&both, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &both, &before);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd one{fd, POLLOUT, 0};
      if (::poll(&one, 1, patience_ms) == 0) error = ETIMEDOUT;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  // These errors have raised a signal, which is dropped.
  const timespec now{};
  if (error == EPIPE || error == EFBIG) ::sigtimedwait(&both, nullptr, &now);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

Status write_file(const std::string& path, std::string_view content, unsigned mode) {
  return write(path, &content, mode, nullptr);
}
Status write_own_file(const std::string& path, std::string_view content, const OwnFile& kind) {
  return write(path, &content, 0644, &kind);
}
Status can_write_own_file(const std::string& path, const OwnFile& kind) {
  return write(path, nullptr, 0600, &kind);
}

Result<std::string> read_small_file(const std::string& path, size_t most) {
  const auto wrong = [&](const char* what) {
    return Status(errno == ENOENT ? Code::kNotFound : Code::kInvalidArgument,
                  fmt::format("{}: cannot be read: {}", path, what));
  };
  errno = 0;
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (!file || ::fstat(file.fd(), &info) != 0) return wrong(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return wrong("it is not a regular file");
  if (static_cast<size_t>(info.st_size) > most) return wrong("it is too large");
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = file.read_at(text.data(), text.size(), 0);
  if (n < 0) return wrong(std::strerror(errno));
  text.resize(static_cast<size_t>(n));
  return text;
}

Result<std::string> sha256(std::string_view bytes) {
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  return finish(context);
}

Result<std::string> sha256(const File& file, uint64_t most) {
  SHA256_CTX context;
  SHA256_Init(&context);
  std::string piece(size_t{1} << 18, '\0');
  for (off_t at = 0;;) {
    const ssize_t n = file.read_at(piece.data(), piece.size(), at);
    if (n < 0)
      return Status(Code::kNotFound, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (n == 0) return finish(context);
    at += n;
    if (static_cast<uint64_t>(at) > most)
      return Status(Code::kInvalidArgument,
                    fmt::format("has more than the expected {} bytes", most));
    SHA256_Update(&context, piece.data(), static_cast<size_t>(n));
  }
}

bool is_sha256(std::string_view text) noexcept {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace yard::base
