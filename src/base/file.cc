// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#define OPENSSL_SUPPRESS_DEPRECATED  // see finish()
#include <openssl/sha.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <yard/trace.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <new>

#include "base/mutex.h"
#include "base/results.h"

namespace yard::base {
namespace {

constexpr int kPatienceMs = 2000, kPatient = -1;  // for a pipe or device that accepts nothing
constexpr int kMostLinks = 40;                    // the limit of the system

// A file to be written. The file and its folder are held open, so that nobody can redirect the path
// meanwhile.
struct Target {
  File folder, file;  // opened with O_PATH; `file` is empty if it does not exist
  std::string name;   // the file's name in the folder
  struct stat info {};
  bool is_link = false;        // the path names a symbolic link
  bool by_descriptor = false;  // an open file of this process, named by a link of /proc

  bool is_regular() const noexcept { return S_ISREG(info.st_mode); }
  bool in_place() const noexcept { return file && (by_descriptor || !is_regular()); }
  std::string path() const { return fmt::format("/proc/self/fd/{}", file.fd()); }
  // Does not block if a pipe has no readers.
  File open(int flags) const {
    return make_file(
        [&, at = path()] { return ::open(at.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  }
};

// Follows links from the last component of a path, each by its descriptor. Follows only links of
// root and of this user, because others could lead the path to any file. Returns a problem or "".
std::string find(std::string path, Target& at) {
  for (int links = 0; links <= kMostLinks; ++links) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
    at.folder = File(::openat(at.folder ? at.folder.fd() : AT_FDCWD, folder.c_str(),
                              O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!at.folder) return std::strerror(errno);
    at.name = path.substr(slash + 1);
    if (at.name.empty()) at.name = ".";
    const auto open_entry = [&](int flags) {
      at.file = File(::openat(at.folder.fd(), at.name.c_str(), O_PATH | O_CLOEXEC | flags));
      return at.file && ::fstat(at.file.fd(), &at.info) == 0;
    };
    at.info = {};
    if (!open_entry(O_NOFOLLOW)) return errno == ENOENT ? "" : std::strerror(errno);
    if (!S_ISLNK(at.info.st_mode)) return {};
    at.is_link = true;
    if (at.info.st_uid != 0 && at.info.st_uid != ::geteuid())
      return fmt::format("it is a symbolic link of user {}", at.info.st_uid);
    struct statfs system {};
    if (::fstatfs(at.folder.fd(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) {
      at.by_descriptor = true;
      return open_entry(0) ? "" : std::strerror(errno);
    }
    char text[PATH_MAX];
    const ssize_t n = ::readlinkat(at.file.fd(), "", text, sizeof text);
    if (n < 0 || n == sizeof text) return std::strerror(n < 0 ? errno : ENAMETOOLONG);
    path.assign(text, static_cast<size_t>(n));
  }
  return std::strerror(ELOOP);
}

std::string why_not(const Target& to, const OwnFile* kind) {
  const mode_t type = to.info.st_mode;
  if (S_ISDIR(type)) return std::strerror(EISDIR);
  if (S_ISBLK(type)) return "it is a disk or another block device; expected a file";
  if (S_ISSOCK(type)) return "it is a socket; expected a file";
  if (kind == nullptr || (to.in_place() && !to.is_regular())) return {};
  const char* const expected = "it is {}; expected {} or a new file";
  if (to.is_link) return fmt::format(fmt::runtime(expected), "a symbolic link", kind->what);
  if (!to.file) return {};
  const File file = to.open(O_RDONLY);
  char start[4096];
  const ssize_t n = file ? file.read_at(start, sizeof start, 0) : -1;
  if (n < 0) return std::strerror(errno);
  if (n == 0 || kind->is({start, static_cast<size_t>(n)})) return {};
  return fmt::format(fmt::runtime(expected), "another file", kind->what);
}

std::string write_in_place(const Target& target, std::string_view content, int patience_ms) {
  const File file = target.open(O_WRONLY | O_TRUNC);
  const int error = file ? write_all(file.fd(), content, patience_ms) : errno;
  return error == 0           ? ""
         : error == ENXIO     ? "it is a pipe without a reader"
         : error == ETIMEDOUT ? "it is a pipe or device that accepts no data"
                              : std::strerror(error);
}

// Writes a temporary file beside the target and renames it. Without `content`, only checks.
std::string replace_file(const Target& target, const std::string_view* content, mode_t mode) {
  static std::atomic<unsigned> count{0};
  const std::string temporary = fmt::format("{}.new.{}.{}", target.name, ::getpid(), ++count);
  const int folder = target.folder.fd();
  const File file = make_file([&] {
    return ::openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  });
  if (!file) return std::strerror(errno);
  int error = 0;
  if (content != nullptr) {
    // Another thread may have freed the number of a closed stderr between the steps of make_file(),
    // so that a line of the program is in the file.
    if (::ftruncate(file.fd(), 0) != 0 || ::lseek(file.fd(), 0, SEEK_SET) != 0) error = errno;
    if (target.file && ::fchmod(file.fd(), target.info.st_mode & 0777) != 0) error = errno;
    if (error == 0) error = write_all(file.fd(), *content, kPatienceMs);
    // A file system that cannot sync returns EINVAL.
    if (error == 0 && ::fsync(file.fd()) != 0 && errno != EINVAL) error = errno;
    if (error == 0 && ::renameat(folder, temporary.c_str(), folder, target.name.c_str()) == 0)
      return {};
    if (error == 0) error = errno;
  }
  ::unlinkat(folder, temporary.c_str(), 0);
  return error == 0 ? "" : std::strerror(error);
}

// Without `content`, only checks that the file can be written.
Status write(const std::string& path, const std::string_view* content, mode_t mode,
             const OwnFile* kind, int patience_ms = kPatienceMs) {
  Target target;
  std::string problem = find(path, target);
  if (problem.empty()) problem = why_not(target, kind);
  if (problem.empty() && !target.in_place())
    problem = replace_file(target, content, mode);
  else if (problem.empty() && content != nullptr)
    problem = write_in_place(target, *content, patience_ms);
  else if (problem.empty() && ::access(target.path().c_str(), W_OK) != 0)
    problem = std::strerror(errno);  // opening a pipe would disturb its reader
  if (problem.empty()) return {};
  return failure(Code::kNotFound, "{}: cannot be written: {}", path, problem);
}

constinit Mutex g_low_lock{Rank::kLog};  // held while closed descriptors below 3 are taken

// The SHA256 functions cannot fail. The EVP functions would keep state for the process, which
// OpenSSL frees at exit while threads of the library still run.
std::string finish(SHA256_CTX& context) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &context);
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace

File make_file(const std::function<int()>& make) {
  // Open by the program, and not held for a moment by another thread that is in this function.
  const auto is_open = [](int fd) { return (::fcntl(fd, F_GETFL) & O_PATH) == 0; };
  if (is_open(STDIN_FILENO) && is_open(STDOUT_FILENO) && is_open(STDERR_FILENO))
    return File(make());  // without the lock, because a fork waits for it and opening may hang
  const std::lock_guard lock(g_low_lock);
  unsigned held = 0;
  int fd;  // writing to it fails as if it were closed
  while ((fd = ::open("/", O_PATH | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO) held |= 1u << fd;
  if (fd >= 0) ::close(fd);
  File made(make());
  const int error = errno;
  // The program may have replaced a held descriptor with its own file.
  for (fd = 0; fd <= STDERR_FILENO; ++fd)
    if ((held >> fd & 1) != 0 && (::fcntl(fd, F_GETFL) & O_PATH) != 0) ::close(fd);
  errno = error;
  return made;
}

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
  // These errors have raised a signal, which must be dropped.
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
    return failure(errno == ENOENT ? Code::kNotFound : Code::kInvalidArgument,
                   "{}: cannot be read: {}", path, what);
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

std::string sha256(std::string_view bytes) {
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
    if (n < 0) return failure(Code::kNotFound, "cannot be read: {}", std::strerror(errno));
    if (n == 0) return finish(context);
    at += n;
    if (static_cast<uint64_t>(at) > most)
      return invalid("has more than the expected {} bytes", most);
    SHA256_Update(&context, piece.data(), static_cast<size_t>(n));
  }
}

std::vector<std::string> names_in(const std::string& folder, int* error) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  if (stream == nullptr && errno == ENOMEM) throw std::bad_alloc();
  std::vector<std::string> names;
  while (stream != nullptr) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (error != nullptr) *error = errno;
  std::ranges::sort(names);
  return names;
}

bool is_sha256(std::string_view text) noexcept {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace yard::base

namespace yard {

Status write_file(const std::string& path, std::string_view text) {
  return base::write(path, &text, 0644, nullptr, base::kPatient);
}

}  // namespace yard
