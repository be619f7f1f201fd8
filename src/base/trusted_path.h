// SPDX-License-Identifier: Apache-2.0
// Who can write a file, or put another in its place.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "base/file.h"

namespace yard::base {

// Users other than root and the user of this process who can write the file or folder at that path: "group 100". Empty if
// there are none. A private group of the user, without other members, counts as the user. Access control lists are not
// read: if the group can write a file that has one, others count as able to.
std::string who_else_can_write(const struct stat& info, const std::string& path);

struct PathEntry {
  std::string directory;  // without links
  std::string path;       // of an entry of that directory
  struct stat info;       // of the entry, not of what a link leads to; zeros if it is missing
  bool last;              // of the path, unless it is a link
};
using PathVisitor = std::function<bool(const PathEntry&)>;  // false ends the walk

// Follows a path component by component, through symbolic links. Each component is visited before it is followed, also the
// first that is missing. `real` is where the path leads, without links. Returns 0 or errno. A link of /proc to an open file
// that its name does not lead to stays as it is.
int follow(const std::string& path, std::string& real, const PathVisitor& visit);

// Why others than root and the user of this process could have chosen what the file at that path holds: "can be written by
// group 100". Empty if they could not. Checks the open file, each folder and symbolic link on the way to it, and whether the
// way leads to the same file. In a sticky folder, as /tmp, entries of root and of this user are fine. So is all that is
// mounted read-only, as ConfigMaps are, and a file by its descriptor below /proc.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
