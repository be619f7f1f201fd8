// SPDX-License-Identifier: Apache-2.0
// Writes lines to standard error without waiting, because a pipe that nobody reads must not stop
// the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace yard::base {

// Writes as many lines as standard error takes without waiting. Splits lines of more than PIPE_BUF
// bytes. Returns the number of bytes written, or lines.size() if standard error is closed or
// broken.
size_t write_some_lines(std::string_view lines);

// Drops and counts lines that would have to wait, and writes their number before later lines.
void write_or_drop_lines(std::string_view lines);
void count_dropped_lines(std::string_view lines) noexcept;

}  // namespace yard::base
