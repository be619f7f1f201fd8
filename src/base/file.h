// SPDX-License-Identifier: Apache-2.0
// Descriptors that close themselves, atomic writing of whole files, and digests.
#pragma once

#include <sys/types.h>
#include <unistd.h>
#include <yard/status.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yard::base {

// Owns a descriptor of at least 3. Otherwise, if a program has closed stdout, its output would end
// up in a file of the library.
class File {
 public:
  File() noexcept = default;
  // The File is empty if `fd` is -1 or cannot be moved. Keeps errno.
  explicit File(int fd) noexcept : fd_(fd < 0 || fd > STDERR_FILENO ? fd : moved_up(fd)) {}
  ~File() { reset(); }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) reset(), fd_ = std::exchange(other.fd_, -1);
    return *this;
  }

  int fd() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Returns fewer bytes only at the end of the file. Returns -1 and sets errno on failure.
  ssize_t read_at(void* to, size_t size, off_t offset) const noexcept;

 private:
  static int moved_up(int fd) noexcept;
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd_ = -1;
};

// Returns the file of the descriptor that make() returns. Use this for files that can be written,
// because output of another thread to a closed stderr must not end up in the file.
File make_file(const std::function<int()>& make);

// Returns 0 or errno, which is ETIMEDOUT if a pipe or device accepts nothing for `patience_ms`. A
// closed pipe or a file limit raises no signal.
int write_all(int fd, std::string_view bytes, int patience_ms = 0);

// Writes a whole file atomically: readers see the old or the new contents. Keeps the mode of an old
// file. Replaces the target of a symbolic link if root or this user has made the link. Writes pipes
// and character devices directly. Refuses block devices, sockets and directories.
Status write_file(const std::string& path, std::string_view content, unsigned mode = 0644);

// A kind of file that only the library writes. Its first bytes (at most 4096) identify it.
struct OwnFile {
  const char* what;  // "a recording"
  bool (*is)(std::string_view start) noexcept;
};

// Replaces only files of the kind and empty files. Refuses links, except to pipes and devices.
Status write_own_file(const std::string& path, std::string_view content, const OwnFile& kind);
// Returns whether write_own_file() would work. Writes nothing to a pipe or device.
Status can_write_own_file(const std::string& path, const OwnFile& kind);

// Fails with kNotFound if the file is missing. Fails if it is not regular or exceeds `most`.
Result<std::string> read_small_file(const std::string& path, size_t most);

// Returns sorted names without "." and "..". Sets `error` to an errno value or 0. Throws
// std::bad_alloc if memory runs out, where std::filesystem would end the process.
std::vector<std::string> names_in(const std::string& folder, int* error = nullptr);

// Returns 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);
// Does not move the position of the file. Fails if the file has more than `most` bytes.
Result<std::string> sha256(const File& file, uint64_t most = UINT64_MAX);
bool is_sha256(std::string_view text) noexcept;

}  // namespace yard::base
