// SPDX-License-Identifier: Apache-2.0
#include "base/rights.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/acl.h"
#include "base/text.h"

namespace yard::base {
namespace {

constexpr int kMostLinksOnAPath = 40;  // limit of the system

// Whether a group is the user's private group: of the same name, with no other member. Many systems make everything
// that a user creates writable by that group.
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

bool is_read_only(const std::string& directory) {
  struct statvfs mount;
  return ::statvfs(directory.c_str(), &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0;
}
bool is_read_only(const File& file) {
  struct statvfs mount;
  return ::fstatvfs(file.fd(), &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0;
}

// Links of /proc lead to files without a path.
bool is_in_proc(const std::string& directory) {
  struct statfs system;
  return ::statfs(directory.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

// Follows a path component by component.
class Way {
 public:
  // Why the way to the file cannot be trusted; empty if it can.
  std::string check(const std::string& path, const struct stat& file) {
    if (!path.starts_with('/')) {
      char here[PATH_MAX];
      if (::getcwd(here, sizeof here) == nullptr) return no_way(errno);
      push(path), push(here);
    } else {
      push(path);
    }
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.back());
      rest_.pop_back();
      if (name == "..")
        at_.resize(at_.empty() ? 0 : at_.rfind('/'));
      else if (std::string why = enter(name); !why.empty() || ended_)
        return why;
    }
    const bool same = last_.st_dev == file.st_dev && last_.st_ino == file.st_ino;
    return same ? "" : "was replaced while it was opened";
  }

 private:
  static std::string no_way(int error) {
    return fmt::format("cannot be reached: {}", std::strerror(error));
  }

  // The next components of the way.
  void push(std::string_view path) {
    const std::vector<std::string_view> names = split(path, '/');
    for (auto name = names.rbegin(); name != names.rend(); ++name)
      if (!name->empty() && *name != ".") rest_.emplace_back(*name);
  }

  std::string enter(const std::string& name) {
    const std::string directory = at_.empty() ? "/" : at_, entry = at_ + "/" + name;
    struct stat parent;
    if (::stat(directory.c_str(), &parent) != 0 || ::lstat(entry.c_str(), &last_) != 0)
      return no_way(errno);
    if (const std::string others = who_else_can_write(parent, directory); !others.empty()) {
      // Of a sticky directory only the owners of an entry and of the directory can replace the entry.
      const bool sticky = (parent.st_mode & S_ISVTX) != 0 && is_ours(parent.st_uid);
      if (!(sticky && is_ours(last_.st_uid)) && !is_read_only(directory))
        return fmt::format("is reached through {}, which can be written by {}", directory, others);
    }
    if (!S_ISLNK(last_.st_mode)) {
      at_ = entry;
      return {};
    }
    if (is_in_proc(directory)) {
      ended_ = true;
      return {};
    }
    char to[PATH_MAX];
    const ssize_t n = ::readlink(entry.c_str(), to, sizeof to);
    if (n <= 0 || n == static_cast<ssize_t>(sizeof to)) return no_way(n < 0 ? errno : ENAMETOOLONG);
    if (++links_ > kMostLinksOnAPath) return no_way(ELOOP);
    if (to[0] == '/') at_.clear();
    push({to, static_cast<size_t>(n)});
    return {};
  }

  std::string at_;                 // a directory without links; empty: the root
  std::vector<std::string> rest_;  // the next is last
  struct stat last_ {};            // of the last entry
  int links_ = 0;
  bool ended_ = false;
};

}  // namespace

std::string who_else_can_write(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return fmt::format("its owner, user {}", info.st_uid);
  if ((info.st_mode & S_IWOTH) != 0) return "everybody";
  if ((info.st_mode & S_IWGRP) != 0 && info.st_gid != 0 && !is_private_group(info.st_gid))
    return fmt::format("group {}", info.st_gid);
  return {};
}

std::string who_else_can_write(const struct stat& info, const std::string& path) {
  std::string who = who_else_can_write(info);
  return who.empty() && (info.st_mode & S_IWGRP) != 0 ? who_writes_by_acl(path) : who;
}

std::string why_untrusted(const std::string& path, const File& file) {
  struct stat info;
  if (::fstat(file.fd(), &info) != 0)
    return fmt::format("cannot be opened: {}", std::strerror(errno));
  if (const std::string others = who_else_can_write(info, path);
      !others.empty() && !is_read_only(file))
    return fmt::format("can be written by {}", others);
  return Way().check(path, info);
}

}  // namespace yard::base
