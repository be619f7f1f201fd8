// SPDX-License-Identifier: Apache-2.0
// Who can write a file, or put another in its place.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/file.h"

namespace yard::base {

// Who besides root and this user can write a file or folder: "group 100", or nothing. The user's
// private group counts as the user. A list of access rights counts if the group can write.
std::string who_else_can_write(const struct stat& info, const std::string& path);

// Why others than root and this user could have chosen the contents of an open file: "can be
// written by group 100", or nothing. Checks the file, each folder and symbolic link of its path,
// and that the path leads to the same file. Trusts what is mounted read-only, entries of root and
// of this user in sticky folders, and the file's own descriptor below /proc.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
