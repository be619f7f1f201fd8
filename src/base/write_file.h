// SPDX-License-Identifier: Apache-2.0
// Writing a file whole: whoever reads it sees what was there before or all of what is there now.
#pragma once

#include <yard/status.h>

#include <string>
#include <string_view>

namespace yard::base {

// Through a file beside it that takes its name, on disk before that. On failure everything is as it was. The
// error has the path and what the system said.
Status write_file(const std::string& path, std::string_view content, unsigned mode = 0644);

// Whether that could be done now: tried with an empty file beside it, which goes again. What is there stays.
Status can_write_file(const std::string& path);

}  // namespace yard::base
