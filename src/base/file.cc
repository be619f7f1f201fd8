// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/trusted_path.h"

namespace yard::base {
namespace {

constexpr int kPatienceMs = 2000;  // for a pipe or device that accepts nothing

// Blocks SIGPIPE and SIGXFSZ on this thread, and drops those that were raised meanwhile.
class WithoutWriteSignals {
 public:
  WithoutWriteSignals() noexcept {
    sigset_t both, waiting;
    ::sigemptyset(&both), ::sigaddset(&both, SIGPIPE), ::sigaddset(&both, SIGXFSZ);
    ::sigemptyset(&waiting), ::sigpending(&waiting);
    raised_by_writes_ = both;
    // A signal that is pending already is another one's.
    for (const int s : {SIGPIPE, SIGXFSZ})
      if (::sigismember(&waiting, s) == 1) ::sigdelset(&raised_by_writes_, s);
    ::pthread_sigmask(SIG_BLOCK, &both, &before_);
  }
  ~WithoutWriteSignals() {
    const timespec now{};
    int got = 0;
    do {
      got = ::sigtimedwait(&raised_by_writes_, nullptr, &now);
    } while (got > 0 || (got < 0 && errno == EINTR));
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutWriteSignals(const WithoutWriteSignals&) = delete;
  WithoutWriteSignals& operator=(const WithoutWriteSignals&) = delete;

 private:
  sigset_t raised_by_writes_, before_;
};

// What a path refers to.
struct Target {
  std::string path;       // of the file itself, links followed; it may be missing
  bool in_place = false;  // a pipe or device, which cannot be replaced
  std::string problem;    // why it cannot be written
};

Target resolve(const std::string& path) {
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
  return target;
}

Status cannot(const std::string& path, const std::string& why) {
  return Status(Code::kNotFound, fmt::format("{}: cannot be written: {}", path, why));
}

// Non-blocking: opening a pipe without readers would block forever.
Status write_in_place(const std::string& path, std::string_view content) {
  const File file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = file ? write_all(file.fd(), content, kPatienceMs) : errno;
  if (error == 0) return {};
  return cannot(path, error == ENXIO       ? "it is a pipe without a reader"
                      : error == ETIMEDOUT ? "it is a pipe or device that accepts no data"
                                           : std::strerror(error));
}

// Writes a temporary file beside `target` and renames it. Without `content` it only tries the first.
Status replace_file(const std::string& path, const std::string& target,
                    const std::string_view* content, unsigned mode, bool exact_mode) {
  static std::atomic<unsigned> count{0};
  const std::string temporary = fmt::format("{}.new.{}.{}", target, ::getpid(), ++count);
  const File file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return cannot(path, std::strerror(errno));
  int error = 0;
  if (content != nullptr) {
    if (exact_mode && ::fchmod(file.fd(), mode) != 0) error = errno;
    if (error == 0) error = write_all(file.fd(), *content, kPatienceMs);
    // EINVAL: a file system that cannot sync.
    if (error == 0 && ::fsync(file.fd()) != 0 && errno != EINVAL) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), target.c_str()) == 0) return {};
    if (error == 0) error = errno;
  }
  ::unlink(temporary.c_str());
  return error == 0 ? Status() : cannot(path, std::strerror(error));
}

// What is at the path of a file of the library's own.
struct Existing {
  bool regular = false, other = false;  // neither: none is there
  unsigned mode = 0644;
  std::string problem;  // why it must not be replaced
};

Existing look_at(const std::string& path, const OwnFile& kind) {
  Existing e;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) e.problem = std::strerror(errno);
    return e;
  }
  if (S_ISLNK(info.st_mode)) {
    e.other = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
    if (!e.other)
      e.problem = fmt::format("it is a symbolic link; expected {} or a new file", kind.what);
    return e;
  }
  e.regular = S_ISREG(info.st_mode), e.other = !e.regular;
  if (e.other) return e;
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  char start[4096];
  const ssize_t n = file ? file.read_at(start, sizeof start, 0) : -1;
  if (n < 0)
    e.problem = std::strerror(errno);
  else if (n > 0 && !kind.is({start, static_cast<size_t>(n)}))
    e.problem = fmt::format("it is another file; expected {} or a new file", kind.what);
  e.mode = info.st_mode & 0777;
  return e;
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
  const WithoutWriteSignals without_signals;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd one{fd, POLLOUT, 0};
      if (::poll(&one, 1, patience_ms) == 0) return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Status write_file(const std::string& path, std::string_view content, unsigned mode) {
  const Target target = resolve(path);
  if (!target.problem.empty()) return cannot(path, target.problem);
  if (target.in_place) return write_in_place(path, content);
  return replace_file(path, target.path, &content, mode, false);
}

Status write_own_file(const std::string& path, std::string_view content, const OwnFile& kind) {
  const Existing e = look_at(path, kind);
  if (!e.problem.empty()) return cannot(path, e.problem);
  return e.other ? write_file(path, content)
                 : replace_file(path, path, &content, e.mode, e.regular);
}

Status can_write_own_file(const std::string& path, const OwnFile& kind) {
  const Existing e = look_at(path, kind);
  if (!e.problem.empty()) return cannot(path, e.problem);
  const Target target = resolve(path);
  if (!target.problem.empty()) return cannot(path, target.problem);
  if (!target.in_place) return replace_file(path, target.path, nullptr, 0600, false);
  // Not opened: the reader of a pipe would notice.
  return ::access(path.c_str(), W_OK) == 0 ? Status() : cannot(path, std::strerror(errno));
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

namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    // A library context of our own: the program's configuration of OpenSSL is neither read nor changed. Never
    // freed, since digests may be made until the process ends.
    static constinit std::once_flag once;
    static constinit const EVP_MD* algorithm = nullptr;
    std::call_once(once, [] { algorithm = EVP_MD_fetch(OSSL_LIB_CTX_new(), "SHA256", nullptr); });
    good_ = context_ != nullptr && algorithm != nullptr &&
            EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1;
  }
  void add(const void* bytes, size_t size) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), bytes, size) == 1;
  }
  Result<std::string> hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    good_ = good_ && EVP_DigestFinal_ex(context_.get(), digest, &size) == 1;
    if (!good_) return Status(Code::kInternal, "libcrypto cannot make a SHA-256 digest");
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool good_;
};

}  // namespace

Result<std::string> sha256(std::string_view bytes) {
  Sha256 s;
  s.add(bytes.data(), bytes.size());
  return s.hex();
}

Result<std::string> sha256(const File& file, uint64_t most) {
  Sha256 s;
  constexpr size_t kPiece = size_t{1} << 18;
  const auto piece = std::make_unique_for_overwrite<char[]>(kPiece);
  for (off_t at = 0;;) {
    const ssize_t n = file.read_at(piece.get(), kPiece, at);
    if (n < 0)
      return Status(Code::kNotFound, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) return s.hex();
    s.add(piece.get(), static_cast<size_t>(n));
    at += n;
    if (static_cast<uint64_t>(at) > most)
      return Status(Code::kInvalidArgument,
                    fmt::format("has more than the expected {} bytes", most));
  }
}

bool is_sha256(std::string_view text) noexcept {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace yard::base
