// SPDX-License-Identifier: Apache-2.0
#include "base/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/file.h"

namespace yard::base {
namespace {

// errno of what failed, 0 if nothing did.
int write_beside(const std::string& beside, std::string_view content, unsigned mode) {
  const File file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return errno;
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(file.fd(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<size_t>(n);
  }
  return ::fsync(file.fd()) == 0 ? 0 : errno;
}

// Two threads, or two processes, never write the same one.
std::string name_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.new.{}.{}", path, ::getpid(),
                     count.fetch_add(1, std::memory_order_relaxed));
}

Status cannot(const std::string& path, int error) {
  return Status(Code::kNotFound,
                fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

}  // namespace

Status write_file(const std::string& path, std::string_view content, unsigned mode) {
  const std::string beside = name_beside(path);
  int error = write_beside(beside, content, mode);
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (error != EEXIST) ::unlink(beside.c_str());
  return cannot(path, error);
}

Status can_write_file(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) return cannot(path, EISDIR);
  const std::string beside = name_beside(path);
  const int error = write_beside(beside, "", 0600);
  if (error != 0) return cannot(path, error);
  ::unlink(beside.c_str());
  return {};
}

}  // namespace yard::base
