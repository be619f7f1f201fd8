// SPDX-License-Identifier: Apache-2.0
#include "base/directory_watch.h"

#include <limits.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace yard::base {
namespace {

constexpr uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY |
                             IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr int kMostLinks = 40;  // as the system allows

// Names still to go through, the next one last.
void push_parts(std::string_view path, std::vector<std::string>& rest) {
  while (!path.empty()) {
    const size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    if (!name.empty() && name != ".") rest.emplace_back(name);
    path = slash == path.npos ? std::string_view() : path.substr(0, slash);
  }
}

}  // namespace

bool DirectoryWatch::open() {
  if (!fd_) fd_ = File(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  return is_open();
}

void DirectoryWatch::close() {
  fd_ = File();
  names_.clear();
  complete_ = true;
}

void DirectoryWatch::walk(const std::string& path, Names& names) {
  std::vector<std::string> rest;
  push_parts(path, rest);
  std::string at;  // without links in it; empty: the root
  for (int links = 0; !rest.empty();) {
    const std::string name = std::move(rest.back());
    rest.pop_back();
    if (name == "..") {
      at.resize(at.empty() ? 0 : at.rfind('/'));
      continue;
    }
    // Watched before it is looked at: what changes in between is an event.
    const int watch =
        ::inotify_add_watch(fd(), at.empty() ? "/" : at.c_str(), kEvents | IN_ONLYDIR);
    if (watch >= 0)
      names[watch].insert(name);
    else if (errno != ENOENT && errno != ENOTDIR)
      complete_ = false;
    const std::string full = at + "/" + name;
    char target[PATH_MAX];
    const ssize_t size = ::readlink(full.c_str(), target, sizeof target);
    if (size < 0 && errno != EINVAL) return;  // it is not there, or out of reach
    if (size < 0) {
      at = full;
      continue;
    }
    if (++links > kMostLinks) return;
    const std::string_view to(target, static_cast<size_t>(size));
    if (to.substr(0, 1) == "/") at.clear();
    push_parts(to, rest);
  }
}

void DirectoryWatch::follow(const std::vector<std::string>& files) {
  complete_ = true;
  Names names;
  for (const std::string& file : files) walk(file, names);
  for (const auto& [watch, old] : names_)
    if (names.count(watch) == 0) ::inotify_rm_watch(fd(), watch);
  names_ = std::move(names);
}

bool DirectoryWatch::drain() {
  bool matters = false;
  alignas(inotify_event) char buffer[16384];
  for (;;) {
    const ssize_t size = ::read(fd(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return matters;
    for (ssize_t i = 0; i < size;) {
      inotify_event e;
      std::memcpy(&e, buffer + i, sizeof e);
      const char* name = buffer + i + sizeof e;
      i += static_cast<ssize_t>(sizeof e + e.len);
      if ((e.mask & IN_Q_OVERFLOW) != 0) matters = true;
      const auto it = names_.find(e.wd);
      if (it == names_.end()) continue;
      // Without a name it is about the directory itself.
      if (e.len == 0 || it->second.count(name) != 0) matters = true;
    }
  }
}

}  // namespace yard::base
