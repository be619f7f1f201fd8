// SPDX-License-Identifier: Apache-2.0
// Who can write a file, or put another in its place.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "base/file.h"

namespace yard::base {

// Who besides root and this user can write a file or folder: "group 100", or nothing. A private
// group of the user counts as the user. If the group can write a file with an access control list,
// so can others.
std::string who_else_can_write(const struct stat& info, const std::string& path);

struct PathEntry {
  std::string directory;  // without links
  std::string path;       // of an entry of that directory
  struct stat info;       // of the entry, not of what a link leads to; zeros if it is missing
  bool last;              // of the path, unless it is a link
};
using PathVisitor = std::function<bool(const PathEntry&)>;  // false ends the walk

// Follows a path through symbolic links to `real`. Each component is visited before it is followed,
// also the first that is missing. A link of /proc to an open file stays as it is, unless its name
// leads to the file. Returns 0 or errno.
int follow(const std::string& path, std::string& real, const PathVisitor& visit);

// Why others than root and this user could have chosen what the file holds: "can be written by
// group 100", or nothing. Checks the open file, each folder and symbolic link on the way to it, and
// whether the way leads to the same file. Entries of root and of this user in a sticky folder are
// fine, and so is all that is mounted read-only, and a file by its descriptor below /proc.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
