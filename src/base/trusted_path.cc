// SPDX-License-Identifier: Apache-2.0
#include "base/trusted_path.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "base/text.h"

namespace yard::base {
namespace {

constexpr int kMostLinksOnAPath = 40;  // the limit of the system

// A private group has the name of its user and no other member. On many systems this group can
// write everything that its user creates.
bool is_private_group(gid_t gid) {
  if (gid != ::getegid()) return false;
  char user_text[4096], group_text[16384];
  struct passwd user, *has_user = nullptr;
  struct group group, *has_group = nullptr;
  if (::getpwuid_r(::geteuid(), &user, user_text, sizeof user_text, &has_user) != 0 ||
      ::getgrgid_r(gid, &group, group_text, sizeof group_text, &has_group) != 0 ||
      has_user == nullptr || has_group == nullptr)
    return false;
  const std::string_view name = user.pw_name;
  if (user.pw_gid != gid || group.gr_name != name) return false;
  for (char** member = group.gr_mem; *member != nullptr; ++member)
    if (*member != name) return false;
  return true;
}

bool is_ours(uid_t owner) { return owner == 0 || owner == ::geteuid(); }

bool is_read_only(const std::string& path) {
  struct statvfs mount;
  return ::statvfs(path.c_str(), &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0;
}

bool is_in_proc(const std::string& directory) {
  struct statfs system;
  return ::statfs(directory.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

bool leads_to(const std::string& path, const struct stat& file) {
  struct stat found;
  return ::stat(path.c_str(), &found) == 0 && found.st_dev == file.st_dev &&
         found.st_ino == file.st_ino;
}

// Pushes the components of a path in reverse order.
void push_components(std::vector<std::string>& rest, std::string_view path) {
  const std::vector<std::string_view> names = split(path, '/');
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (!name->empty() && *name != ".") rest.emplace_back(*name);
}

}  // namespace

std::string who_else_can_write(const struct stat& info, const std::string& path) {
  if (!is_ours(info.st_uid)) return fmt::format("its owner, user {}", info.st_uid);
  if ((info.st_mode & S_IWOTH) != 0) return "everybody";
  if ((info.st_mode & S_IWGRP) == 0) return {};
  if (info.st_gid != 0 && !is_private_group(info.st_gid))
    return fmt::format("group {}", info.st_gid);
  // The group's bits are the mask of an access control list.
  if (::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0)
    return "others, by its access control list";
  return {};
}

std::string why_untrusted(const std::string& path, const File& file) {
  struct stat info;
  if (::fstat(file.fd(), &info) != 0)
    return fmt::format("cannot be opened: {}", std::strerror(errno));
  if (const std::string others = who_else_can_write(info, path);
      !others.empty() && !is_read_only(fmt::format("/proc/self/fd/{}", file.fd())))
    return fmt::format("can be written by {}", others);
  const auto unreachable = [](int error) {
    return fmt::format("cannot be reached: {}", std::strerror(error));
  };
  char text[PATH_MAX];
  std::vector<std::string> rest;
  push_components(rest, path);
  if (!path.starts_with('/')) {
    if (::getcwd(text, sizeof text) == nullptr) return unreachable(errno);
    push_components(rest, text);
  }
  std::string real;  // the path so far without links; empty for the root
  for (int links = 0; !rest.empty();) {
    const std::string name = std::move(rest.back());
    rest.pop_back();
    if (name == "..") {
      real.resize(real.empty() ? 0 : real.rfind('/'));
      continue;
    }
    const std::string folder = real.empty() ? "/" : real, entry = real + "/" + name;
    struct stat parent, at;
    if (::stat(folder.c_str(), &parent) != 0 || ::lstat(entry.c_str(), &at) != 0)
      return unreachable(errno);
    const std::string others = who_else_can_write(parent, folder);
    // In a sticky directory only the owners of an entry and of the directory can replace the entry.
    const bool sticky = (parent.st_mode & S_ISVTX) != 0 && is_ours(parent.st_uid);
    if (!others.empty() && !(sticky && is_ours(at.st_uid)) && !is_read_only(folder))
      return fmt::format("is reached through {}, which can be written by {}", folder, others);
    if (!S_ISLNK(at.st_mode)) {
      real = entry;
      continue;
    }
    if (is_in_proc(folder) && leads_to(entry, info)) return {};  // the file itself
    const ssize_t n = ::readlink(entry.c_str(), text, sizeof text);
    if (n < 0) return unreachable(errno);
    if (n == static_cast<ssize_t>(sizeof text)) return unreachable(ENAMETOOLONG);
    if (++links > kMostLinksOnAPath) return unreachable(ELOOP);
    if (text[0] == '/') real.clear();
    push_components(rest, {text, static_cast<size_t>(n)});
  }
  return leads_to(real, info) ? "" : "was replaced while it was opened";
}

}  // namespace yard::base
