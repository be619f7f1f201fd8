// SPDX-License-Identifier: Apache-2.0
// Who can write a file, or put another in its place.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/file.h"

namespace yard::base {

// Users other than root and the user of this process that can write a file or directory: "group 100"; empty if there
// are none. A private group of the user, without other members, counts as the user.
std::string who_else_can_write(const struct stat& info);
// The same with those who can by an access control list of the file at that path, whose directories are trusted.
std::string who_else_can_write(const struct stat& info, const std::string& path);

// Why others than root and the user of this process could have chosen what the file at that path holds, for messages
// ("can be written by group 100"); empty if they could not. Checks the file that is open, and each directory and
// symbolic link on the way to it, whether that leads to the same file. In a sticky directory, as /tmp, entries of root
// and of this user are fine; so is all that is mounted read-only, as ConfigMaps are.
std::string why_untrusted(const std::string& path, const File& file);

}  // namespace yard::base
