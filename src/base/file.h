// SPDX-License-Identifier: Apache-2.0
// Files: a descriptor that closes itself, atomic writing of whole files, and digests.
#pragma once

#include <sys/types.h>
#include <unistd.h>
#include <yard/status.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace yard::base {

// Owns a descriptor, which is at least 3: in a program that has closed stdin, stdout or stderr, what it prints must not end
// up in a file of the library.
class File {
 public:
  File() noexcept = default;
  // Takes the descriptor. -1 is no file, with errno as it is; so is one below 3 that cannot be moved.
  explicit File(int fd) noexcept : fd_(fd < 0 || fd > STDERR_FILENO ? fd : moved_up(fd)) {}
  ~File() { reset(); }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) reset(), fd_ = std::exchange(other.fd_, -1);
    return *this;
  }

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Up to `size` bytes from `offset`, fewer only at the end of the file; -1 with errno on failure.
  ssize_t read_at(void* to, size_t size, off_t offset) const noexcept;

 private:
  static int moved_up(int fd) noexcept;
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd_ = -1;
};

// Writes all bytes. A closed pipe or a file limit is an error and raises no signal. Waits up to `patience_ms` where a pipe or
// device accepts nothing. Returns 0 or errno; ETIMEDOUT if it has waited in vain.
int write_all(int fd, std::string_view bytes, int patience_ms = 0);

// Writes a whole file atomically: readers see the old or the new contents, and on failure the old file stays. Symbolic links
// are followed: their target is replaced. A pipe or character device is written directly; a block device, socket or
// directory is an error.
Status write_file(const std::string& path, std::string_view content, unsigned mode = 0644);

// A kind of file that only the library writes, by its first bytes (at most 4096).
struct OwnFile {
  const char* what;  // "a recording"
  bool (*is)(std::string_view start) noexcept;
};

// write_file() for such files: replaces only one of the kind, or an empty file, and keeps its mode. A symbolic link to a
// file, or to none, is an error.
Status write_own_file(const std::string& path, std::string_view content, const OwnFile& kind);
// Whether write_own_file() would work: tried with an empty temporary file. Writes nothing to a pipe or device.
Status can_write_own_file(const std::string& path, const OwnFile& kind);

// The contents of a regular file of at most `most` bytes. Errors have the path; the code is kNotFound if it is missing.
Result<std::string> read_small_file(const std::string& path, size_t most);

// 64 lower-case hexadecimal digits.
Result<std::string> sha256(std::string_view bytes);
// Of a whole file; its position does not change. An error if it has more than `most` bytes.
Result<std::string> sha256(const File& file, uint64_t most = UINT64_MAX);
bool is_sha256(std::string_view text) noexcept;

}  // namespace yard::base
