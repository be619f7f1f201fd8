// SPDX-License-Identifier: Apache-2.0
// inotify on every directory on the way to a set of files: from the root down, through every symbolic link,
// so that whatever changes what a path means is noticed. Of one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"

namespace yard::base {

class DirectoryWatch {
 public:
  // False, with errno, where the system gives none.
  bool open();
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.fd(); }
  void close();

  // Absolute paths. From now on, also where a path ends early because something is not there yet. Nothing that
  // happens after it looked at a directory is lost.
  void follow(const std::vector<std::string>& files);
  // Whether every directory could be watched.
  bool complete() const noexcept { return complete_; }

  // Takes what has happened; true if some of it was on the way to a file. Then follow() again.
  bool drain();

 private:
  using Names =
      std::map<int, std::set<std::string>>;  // watch → what is of interest in the directory
  void walk(const std::string& path, Names& names);

  File fd_;
  Names names_;
  bool complete_ = true;
};

}  // namespace yard::base
