// SPDX-License-Identifier: Apache-2.0
// Files that commands write where they are told to.
#pragma once

#include <yard/status.h>

#include <string>

namespace yard::tool {

// Whole or not at all, through a file beside it. Links are followed and stay; a pipe or a device is written into.
Status write_output(const std::string& path, const std::string& text);

}  // namespace yard::tool
