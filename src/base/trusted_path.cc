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

constexpr int kMostLinksOnAPath = 40;  // limit of the system

// The user's private group has the same name and no other member. Many systems make everything that
// a user creates writable by that group.
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

// A link of /proc is an open file, which may have no name, or the name of another file now.
bool leads_by_name(const PathEntry& link, const std::string& name) {
  struct stat file;
  return ::stat(link.path.c_str(), &file) == 0 &&
         leads_to(name.starts_with('/') ? name : link.directory + "/" + name, file);
}

// Adds the components of a path to those that follow, the next one last.
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
  // With such a list the bits of the group are its mask.
  if (::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0)
    return "others, by its access control list";
  return {};
}

int follow(const std::string& path, std::string& real, const PathVisitor& visit) {
  char text[PATH_MAX];
  std::vector<std::string> rest;
  push_components(rest, path);
  if (!path.starts_with('/')) {
    if (::getcwd(text, sizeof text) == nullptr) return errno;
    push_components(rest, text);
  }
  real.clear();  // the root, inside of the loop
  for (int links = 0; !rest.empty();) {
    const std::string name = std::move(rest.back());
    rest.pop_back();
    if (name == "..") {
      real.resize(real.empty() ? 0 : real.rfind('/'));
      continue;
    }
    PathEntry at{real.empty() ? "/" : real, real + "/" + name, {}, rest.empty()};
    const int error = ::lstat(at.path.c_str(), &at.info) != 0 ? errno : 0;
    if (error != 0) at.info = {};
    if (!visit(at) || error != 0) return error;
    if (!S_ISLNK(at.info.st_mode)) {
      real = at.path;
      continue;
    }
    const ssize_t n = ::readlink(at.path.c_str(), text, sizeof text);
    if (n < 0) return errno;
    if (n == static_cast<ssize_t>(sizeof text)) return ENAMETOOLONG;
    if (++links > kMostLinksOnAPath) return ELOOP;
    const std::string to(text, static_cast<size_t>(n));
    if (is_in_proc(at.directory) && !leads_by_name(at, to)) {
      if (!rest.empty()) return ENOENT;
      real = at.path;
      continue;
    }
    if (to.starts_with('/')) real.clear();
    push_components(rest, to);
  }
  if (real.empty()) real = "/";
  return 0;
}

std::string why_untrusted(const std::string& path, const File& file) {
  struct stat info;
  if (::fstat(file.fd(), &info) != 0)
    return fmt::format("cannot be opened: {}", std::strerror(errno));
  if (const std::string others = who_else_can_write(info, path);
      !others.empty() && !is_read_only(fmt::format("/proc/self/fd/{}", file.fd())))
    return fmt::format("can be written by {}", others);
  std::string why, real;
  bool by_descriptor = false;  // whatever its name
  const int error = follow(path, real, [&](const PathEntry& at) {
    struct stat parent;
    if (at.info.st_mode == 0) return false;
    if (::stat(at.directory.c_str(), &parent) != 0) return false;
    const std::string others = who_else_can_write(parent, at.directory);
    // In a sticky directory only the owners of an entry and of the directory can replace it.
    const bool sticky = (parent.st_mode & S_ISVTX) != 0 && is_ours(parent.st_uid);
    if (!others.empty() && !(sticky && is_ours(at.info.st_uid)) && !is_read_only(at.directory))
      why = fmt::format("is reached through {}, which can be written by {}", at.directory, others);
    by_descriptor = S_ISLNK(at.info.st_mode) && is_in_proc(at.directory) && leads_to(at.path, info);
    return why.empty() && !by_descriptor;
  });
  if (!why.empty() || by_descriptor) return why;
  if (error != 0) return fmt::format("cannot be reached: {}", std::strerror(error));
  return leads_to(real, info) ? "" : "was replaced while it was opened";
}

}  // namespace yard::base
