// SPDX-License-Identifier: Apache-2.0
#include "plugin/search.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"

namespace yard::plugin {
namespace fs = std::filesystem;
namespace {

Refusal relative(std::string_view path) {
  return {PluginReason::kRelativePath,
          path.empty() ? std::string("an entry is empty")
                       : fmt::format("{} does not begin with '/'", base::excerpt(path))};
}

Refusal unreadable(int error) {
  return {error == ENOENT || error == ENOTDIR ? PluginReason::kNotFound : PluginReason::kUnreadable,
          std::strerror(error)};
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether a group is the one that many systems give each user: of the user's name, with no other member. There
// everything that the user makes can be written by that group.
bool holds_the_user_alone(gid_t gid) {
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

}  // namespace

std::string who_else_can_write(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return fmt::format("its owner, user {}", info.st_uid);
  if ((info.st_mode & S_IWOTH) != 0) return "everybody";
  if ((info.st_mode & S_IWGRP) != 0 && info.st_gid != 0 && !holds_the_user_alone(info.st_gid))
    return fmt::format("group {}", info.st_gid);
  return {};
}

Refusal Directories::check(const std::string& directory) {
  if (allow_writable_) return {};
  const auto known = known_.find(directory);
  return known != known_.end() ? known->second : known_[directory] = look(directory);
}

Refusal Directories::look(const std::string& directory) {
  std::error_code error;
  const fs::path real = fs::canonical(directory, error);
  if (error) return unreadable(error.value());
  bool direct = true;
  for (fs::path at = real;; at = at.parent_path()) {
    struct stat info;
    if (::stat(at.c_str(), &info) != 0) return unreadable(errno);
    // Further up it is enough that nobody can rename what is ours.
    const bool sticky = !direct && (info.st_mode & S_ISVTX) != 0;
    const std::string who = sticky ? std::string() : who_else_can_write(info);
    if (!who.empty())
      return {PluginReason::kWritableByOthers,
              fmt::format("directory {} can be written by {}", at.string(), who)};
    direct = false;
    if (at == at.parent_path()) return {};
  }
}

Found search(const std::vector<std::string>& entries, Directories& directories) {
  Found found;
  const auto add_directory = [&](const std::string& path) {
    if (std::find(found.directories.begin(), found.directories.end(), path) ==
        found.directories.end())
      found.directories.push_back(path);
  };
  for (const std::string& entry : entries) {
    if (!entry.starts_with('/')) {
      found.refused.push_back({entry, relative(entry)});
      continue;
    }
    struct stat info;
    if (::stat(entry.c_str(), &info) != 0) {
      found.refused.push_back({entry, unreadable(errno)});
      continue;
    }
    const bool is_directory = S_ISDIR(info.st_mode);
    const std::string directory = is_directory ? entry : directory_of(entry);
    if (Refusal r = directories.check(directory); r.refused()) {
      found.refused.push_back({entry, std::move(r)});
      continue;
    }
    add_directory(directory);
    if (!is_directory) {
      found.files.push_back(entry);
      continue;
    }
    std::error_code error;
    std::vector<std::string> files;
    for (fs::directory_iterator it(entry, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".so") files.push_back(it->path().string());
    if (error) found.refused.push_back({entry, unreadable(error.value())});
    std::sort(files.begin(), files.end());
    found.files.insert(found.files.end(), files.begin(), files.end());
  }
  return found;
}

std::vector<std::string> absolute_entries(std::string_view text, char separator,
                                          std::vector<RefusedPath>& refused) {
  std::vector<std::string> entries;
  if (base::trim(text).empty()) return entries;
  for (std::string_view entry : base::split(text, separator)) {
    if (entry.starts_with('/'))
      entries.emplace_back(entry);
    else
      refused.push_back({std::string(entry), relative(entry)});
  }
  return entries;
}

bool privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

}  // namespace yard::plugin
