// SPDX-License-Identifier: Apache-2.0
#include "base/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/file.h"

namespace yard::base {
namespace {

// So long a pipe or a device may take nothing before it is given up.
constexpr int kPatienceMs = 2000;
constexpr int kMostSteps = 40;  // as the system has it

// What a path stands for.
struct Place {
  std::string path;       // of the file itself, links followed; it need not be there
  bool in_place = false;  // a pipe or a device: there is nothing that could take its name
  std::string problem;    // why nothing is written to it
};

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Where the links end; what is there may be nothing.
std::string follow(std::string path) {
  for (int i = 0; i < kMostSteps; ++i) {
    char to[PATH_MAX];
    const ssize_t n = ::readlink(path.c_str(), to, sizeof to);
    if (n <= 0 || n == static_cast<ssize_t>(sizeof to)) break;
    const std::string target(to, static_cast<size_t>(n));
    path = target[0] == '/' ? target : directory_of(path) + target;
  }
  return path;
}

Place place_of(const std::string& path) {
  Place place;
  place.path = follow(path);
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) {
    if (errno != ENOENT) place.problem = std::strerror(errno);
    return place;
  }
  if (S_ISDIR(there.st_mode)) {
    place.problem = std::strerror(EISDIR);
  } else if (S_ISBLK(there.st_mode)) {
    place.problem = "it is a disk or another block device; expected a file";
  } else if (S_ISSOCK(there.st_mode)) {
    place.problem = "it is a socket; expected a file";
  } else if (!S_ISREG(there.st_mode)) {
    place.in_place = true, place.path = path;
  } else if (::stat(place.path.c_str(), &there) != 0) {
    // A file that has no name any more, as /proc shows it. One that is being replaced has one all the time.
    place.in_place = true, place.path = path;
  }
  return place;
}

// A reader that goes away is an error here, not the end of the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t waiting;
    ::sigemptyset(&pipe_), ::sigaddset(&pipe_, SIGPIPE), ::sigemptyset(&waiting);
    ::sigpending(&waiting);
    was_waiting_ = ::sigismember(&waiting, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    if (!was_waiting_)
      while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_waiting_ = false;
};

// errno of what failed, 0 if nothing did.
int write_content(const File& file, std::string_view content) {
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(file.fd(), content.data() + done, content.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    pollfd one{file.fd(), POLLOUT, 0};
    if (::poll(&one, 1, kPatienceMs) == 0) return ETIMEDOUT;
  }
  return 0;
}

int write_beside(const std::string& beside, std::string_view content, unsigned mode) {
  const File file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return errno;
  if (const int error = write_content(file, content); error != 0) return error;
  return ::fsync(file.fd()) == 0 ? 0 : errno;
}

// Without blocking: a pipe that nobody reads would keep the thread for good.
int write_into(const std::string& path, std::string_view content) {
  const File file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return errno;
  const WithoutSigpipe without;
  return write_content(file, content);
}

// Two threads, or two processes, never write the same one.
std::string name_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.new.{}.{}", path, ::getpid(),
                     count.fetch_add(1, std::memory_order_relaxed));
}

Status cannot(const std::string& path, const std::string& why) {
  return Status(Code::kNotFound, fmt::format("{}: cannot be written: {}", path, why));
}

std::string why_not_into(int error) {
  if (error == ENXIO) return "it is a pipe that nobody reads";
  if (error == ETIMEDOUT) return "it is a pipe or a device that takes no more";
  return std::strerror(error);
}

}  // namespace

Status write_file(const std::string& path, std::string_view content, unsigned mode) {
  const Place place = place_of(path);
  if (!place.problem.empty()) return cannot(path, place.problem);
  if (place.in_place) {
    const int error = write_into(place.path, content);
    return error == 0 ? Status() : cannot(path, why_not_into(error));
  }
  const std::string beside = name_beside(place.path);
  int error = write_beside(beside, content, mode);
  if (error == 0 && ::rename(beside.c_str(), place.path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (error != EEXIST) ::unlink(beside.c_str());
  return cannot(path, std::strerror(error));
}

Status can_write_file(const std::string& path) {
  const Place place = place_of(path);
  if (!place.problem.empty()) return cannot(path, place.problem);
  if (place.in_place) {
    // Opening a pipe would tell its reader that somebody came and went.
    if (::access(place.path.c_str(), W_OK) == 0) return {};
    return cannot(path, std::strerror(errno));
  }
  const std::string beside = name_beside(place.path);
  const int error = write_beside(beside, "", 0600);
  if (error != 0) return cannot(path, std::strerror(error));
  ::unlink(beside.c_str());
  return {};
}

}  // namespace yard::base
