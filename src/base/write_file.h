// SPDX-License-Identifier: Apache-2.0
// Writing a file whole: whoever reads it sees what was there before or all of what is there now.
#pragma once

#include <yard/status.h>

#include <string>
#include <string_view>

namespace yard::base {

// Through a file beside it that takes its name, on disk before that. On failure everything is as it was. The
// error has the path and what the system said. Links are followed and stay: the file they lead to is replaced. A
// pipe or a character device is written into, as there is nothing that could take its place; a disk, a socket and a
// directory are an error.
Status write_file(const std::string& path, std::string_view content, unsigned mode = 0644);

// Whether that could be done now: tried with an empty file beside it, which goes again. What is there stays, and
// nothing is written to a pipe or a device.
Status can_write_file(const std::string& path);

}  // namespace yard::base
