// SPDX-License-Identifier: Apache-2.0
// Access control lists for tests.
#pragma once

#include <sys/xattr.h>

#include <cstdint>
#include <string>
#include <vector>

namespace yard::base {

inline constexpr uint32_t kNoId = ~uint32_t{0};

// Tags: 1 the owner, 2 a user, 4 the group, 8 another group, 16 the mask, 32 all others. Permissions: 4 read, 2 write, 1
// execute.
struct AclEntry {
  uint16_t tag, permissions;
  uint32_t id;
};

// The value of the attribute system.posix_acl_access.
inline std::string acl_value(const std::vector<AclEntry>& entries) {
  std::string to;
  const auto put = [&](uint32_t n, int bytes) {
    for (int i = 0; i < bytes; ++i) to += static_cast<char>(n >> (8 * i) & 255);
  };
  put(2, 4);
  for (const AclEntry& e : entries) put(e.tag, 2), put(e.permissions, 2), put(e.id, 4);
  return to;
}

// Lets a user write a file or directory. False if the file system has no ACLs.
inline bool let_write(const std::string& path, uint32_t user) {
  const std::string value =
      acl_value({{1, 7, kNoId}, {2, 7, user}, {4, 5, kNoId}, {16, 7, kNoId}, {32, 5, kNoId}});
  return ::setxattr(path.c_str(), "system.posix_acl_access", value.data(), value.size(), 0) == 0;
}

}  // namespace yard::base
