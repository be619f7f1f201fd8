// SPDX-License-Identifier: Apache-2.0
// POSIX access control lists of files and directories.
#pragma once

#include <string>
#include <string_view>

namespace yard::base {

// Who may write a file or directory by its ACL, beside its owner, its group, root and the user of this process: "user 1000,
// by its ACL". Empty if none may, or if there is no ACL. Without write permission of the group (S_IWGRP), which is the mask
// of an ACL, none may. Follows links.
std::string who_writes_by_acl(const std::string& path);

// The same for the value of the attribute system.posix_acl_access.
std::string who_writes_by_acl_value(std::string_view value);

}  // namespace yard::base
