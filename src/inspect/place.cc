// SPDX-License-Identifier: Apache-2.0
#include "inspect/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace yard::inspect {
namespace {

constexpr std::string_view kEnding = ".sock";

bool is_directory_of(uid_t user, const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == user;
}

}  // namespace

std::vector<std::string> directories(uid_t user) {
  std::vector<std::string> to;
  const std::string run = fmt::format("/run/user/{}", user);
  if (is_directory_of(user, run)) to.push_back(run + "/yard");
  to.push_back(fmt::format("/tmp/yard-{}", user));
  return to;
}

Status make_directory(const std::string& path) {
  const auto refused = [&](std::string_view got) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("invalid directory {}: expected one that only user {} can open, got {}", path,
                    ::geteuid(), got));
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(Code::kUnsupported,
                  fmt::format("cannot make directory {}: {}", path, std::strerror(errno)));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return refused(std::strerror(errno));
  if (S_ISLNK(info.st_mode)) return refused("a symbolic link");
  if (!S_ISDIR(info.st_mode)) return refused("a file");
  if (info.st_uid != ::geteuid()) return refused(fmt::format("one of user {}", info.st_uid));
  // The bits of the group are also the mask of an access control list.
  if ((info.st_mode & 077) != 0) return refused(fmt::format("mode {:o}", info.st_mode & 07777));
  return {};
}

std::string socket_path(const std::string& directory, int64_t pid) {
  return fmt::format("{}/{}{}", directory, pid, kEnding);
}

std::optional<int64_t> process_of(std::string_view name) noexcept {
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const auto pid = base::number<int64_t>(name);
  return pid && *pid > 0 ? pid : std::nullopt;
}

}  // namespace yard::inspect
