// SPDX-License-Identifier: Apache-2.0
// Files that commands read and write.
#pragma once

#include <yard/status.h>

#include <cstddef>
#include <string>

namespace yard::tool {

// The text of a file or pipe; an error if it has more than `most` bytes, as /dev/zero has.
Result<std::string> read_input(const std::string& path, size_t most);

// Writes a file that was asked for: through a new file beside it, so that it is replaced whole or not at all. Links stay,
// and their target is replaced; pipes and devices are written into. The error has the cause.
Status write_output(const std::string& path, const std::string& text);

}  // namespace yard::tool
