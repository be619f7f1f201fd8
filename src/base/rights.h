// SPDX-License-Identifier: Apache-2.0
// Who can write a file, or put another in its place.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace yard::base {

// Users other than root and the user of this process that can write a file or directory: "group 100"; empty if there
// are none. A private group of the user, without other members, counts as the user.
std::string who_else_can_write(const struct stat& info);
// The same with those who can by an access control list of the file at that path, whose directories are trusted.
std::string who_else_can_write(const struct stat& info, const std::string& path);

// Who may write a file or directory by its ACL, beside its owner, its group, root and the user of this process: "user 1000,
// by its ACL". Empty if none may, or if there is no ACL. Without write permission of the group (S_IWGRP), which is the mask
// of an ACL, none may. Follows links.
std::string who_writes_by_acl(const std::string& path);
// The same for the value of the attribute system.posix_acl_access.
std::string who_writes_by_acl_value(std::string_view value);

struct PathEntry {
  std::string directory;  // without links
  std::string path;       // of an entry of that directory
  struct stat
      info;   // of the entry; of a link, not of what it leads to; of one that is missing, zeros
  bool last;  // of the path, unless it is a link
};
using PathVisitor = std::function<bool(const PathEntry&)>;  // false ends the walk

// Follows a path component by component, through symbolic links; each is visited before it is followed, also the first that
// is missing. `real` is where it leads, without links. 0 or errno. A link of /proc to an open file that its name does not lead to stays as it is.
int follow(const std::string& path, std::string& real, const PathVisitor& visit);

// Why others than root and the user of this process could have chosen what the file at that path holds, for messages
// ("can be written by group 100"); empty if they could not. Checks the file that is open, and each directory and
// symbolic link on the way to it, whether that leads to the same file. In a sticky directory, as /tmp, entries of root
// and of this user are fine; so is all that is mounted read-only, as ConfigMaps are, and a file by its descriptor
// below /proc, whatever its name.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
