// SPDX-License-Identifier: Apache-2.0
#include "base/acl.h"

#include <fmt/format.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/xattr.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace yard::base {
namespace {

constexpr size_t kLargestAcl = 65536;  // limit of the system for an attribute

// Little-endian.
uint32_t number_at(std::string_view bytes, size_t at, size_t size) {
  uint32_t n = 0;
  for (size_t i = size; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[at + i]);
  return n;
}

}  // namespace

std::string who_writes_by_acl_value(std::string_view value) {
  constexpr size_t kHead = sizeof(posix_acl_xattr_header), kEntry = sizeof(posix_acl_xattr_entry);
  if (value.size() < kHead || (value.size() - kHead) % kEntry != 0 ||
      number_at(value, 0, 4) != POSIX_ACL_XATTR_VERSION)
    return "others, as its ACL is invalid";
  std::string who;
  bool masked = false;
  for (size_t at = kHead; at < value.size(); at += kEntry) {
    const uint32_t tag = number_at(value, at, 2), id = number_at(value, at + 4, 4);
    const bool writes = (number_at(value, at + 2, 2) & ACL_WRITE) != 0;
    if (tag == ACL_MASK && !writes) masked = true;
    if (!writes) continue;
    if (tag == ACL_USER && id != 0 && id != ::geteuid())
      who = fmt::format("user {}, by its ACL", id);
    else if (tag == ACL_GROUP && id != 0)
      who = fmt::format("group {}, by its ACL", id);
  }
  return masked ? std::string() : who;
}

std::string who_writes_by_acl(const std::string& path) {
  std::string value(1024, '\0');
  for (;;) {
    const ssize_t n =
        ::getxattr(path.c_str(), XATTR_NAME_POSIX_ACL_ACCESS, value.data(), value.size());
    if (n >= 0)
      return who_writes_by_acl_value(std::string_view(value).substr(0, static_cast<size_t>(n)));
    if (errno == ERANGE && value.size() < kLargestAcl) {
      value.resize(kLargestAcl);
      continue;
    }
    if (errno == ENODATA || errno == ENOTSUP) return {};
    return fmt::format("others, as its ACL cannot be read: {}", std::strerror(errno));
  }
}

}  // namespace yard::base
