// SPDX-License-Identifier: Apache-2.0
// Where plugins are looked for, and which files and directories can be trusted.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/refusal.h"

namespace yard::plugin {

// Whether a file or directory that `info` is about can be changed by somebody other than root and the user
// of this process. Empty if not. A group of the user's own, with nobody else in it, is the user.
std::string who_else_can_write(const struct stat& info);

// Judges directories: each and all above it. Remembers, so one search asks once for each.
class Directories {
 public:
  explicit Directories(bool allow_writable) : allow_writable_(allow_writable) {}
  // Of the directory that holds a file, symbolic links followed.
  Refusal check(const std::string& directory);

 private:
  Refusal look(const std::string& directory);
  bool allow_writable_;
  std::map<std::string, Refusal> known_;
};

struct RefusedPath {
  std::string path;
  Refusal refusal;
};

// What a list of files and directories comes to. Directories stand for their *.so, by name.
struct Found {
  std::vector<std::string> files;
  std::vector<std::string> directories;  // of all files: where lock files are looked for
  std::vector<RefusedPath> refused;
};
Found search(const std::vector<std::string>& entries, Directories& directories);

// The entries of a list with separators, those that are empty or not absolute refused. Blank text is an
// empty list.
std::vector<std::string> absolute_entries(std::string_view text, char separator,
                                          std::vector<RefusedPath>& refused);

// Whether the process runs with more rights than whoever started it; then the environment has no say.
bool privileged() noexcept;

}  // namespace yard::plugin
