// SPDX-License-Identifier: Apache-2.0
// Files that commands write.
#pragma once

#include <yard/status.h>

#include <string>

namespace yard::tool {

// Atomically, through a temporary file beside it. Links are followed and kept; a pipe or a device is written into.
Status write_output(const std::string& path, const std::string& text);

}  // namespace yard::tool
