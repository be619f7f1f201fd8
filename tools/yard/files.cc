// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace yard::tool {
namespace {

namespace fs = std::filesystem;
constexpr int kMostLinks = 40;
constexpr int kMostNames = 100;

Status cannot(const char* do_what, const std::string& path, const std::string& why) {
  return Status(Code::kNotFound, fmt::format("cannot {} '{}': {}", do_what, path, why));
}

// The target of links, which may not exist.
fs::path real_file(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  return path;
}

// errno of the failure; 0 on success.
int write_and_close(int fd, std::string_view text) {
  int error = 0;
  while (error == 0 && !text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) error = errno;
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

Result<std::string> read_input(const std::string& path, size_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot("read", path, std::strerror(errno));
  std::string text;
  char piece[1 << 15];
  ssize_t n = 0;
  while ((n = ::read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)) {
    text.append(piece, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (text.size() > most) break;
  }
  const int error = n < 0 ? errno : 0;
  ::close(fd);
  if (error != 0) return cannot("read", path, std::strerror(error));
  if (text.size() > most)
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: expected at most {} MiB, got more", path, most >> 20));
  return text;
}

Status write_output(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  const bool special = fs::exists(there) && !fs::is_regular_file(there);
  if (fs::is_directory(there)) return cannot("write", path, "it is a directory");
  if (fs::is_block_file(there) || fs::is_socket(there))
    return cannot("write", path, "it is a block device or a socket; expected a file");
  const fs::path real = real_file(path);
  std::string to = path;
  int fd = special ? ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC) : -1;
  // Whatever has one of these names is another's.
  for (int i = 0; !special && i < kMostNames && (i == 0 || (fd < 0 && errno == EEXIST)); ++i) {
    to = fmt::format("{}.new.{}.{}", real.string(), ::getpid(), i);
    fd = ::open(to.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  }
  if (fd < 0) return cannot("write", path, std::strerror(errno));
  if (fs::is_regular_file(there)) ::fchmod(fd, static_cast<mode_t>(there.permissions()) & 0777);
  int why = write_and_close(fd, text);
  if (why == 0 && !special && ::rename(to.c_str(), real.c_str()) != 0) why = errno;
  if (why == 0) return {};
  if (!special) ::unlink(to.c_str());
  return cannot("write", path, std::strerror(why));
}

}  // namespace yard::tool
