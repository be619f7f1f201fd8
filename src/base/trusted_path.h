// SPDX-License-Identifier: Apache-2.0
// Finds out who can write a file, or put another file in its place.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/file.h"

namespace yard::base {

// Returns who besides root and this user can write a file or folder: "group 100", or nothing. The
// user's private group counts as the user. Access control lists count if the group can write.
std::string who_else_can_write(const struct stat& info, const std::string& path);

// Returns why others than root and this user could have chosen the contents of an open file, such
// as "can be written by group 100", or nothing. Checks the file, each folder and symbolic link of
// its path, and that the path leads to this file. Trusts read-only mounts, entries of root and of
// this user in sticky folders, and the file's own descriptor below /proc.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
