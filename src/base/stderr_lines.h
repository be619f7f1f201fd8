// SPDX-License-Identifier: Apache-2.0
// Lines on standard error that never wait for whoever reads them: a pipe that nobody reads must not
// stop the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace yard::base {

// Writes as much as standard error takes without waiting, in whole lines unless a line has more
// than PIPE_BUF bytes. Returns the number of bytes written. If standard error is closed or broken,
// that is all of them. Raises no signal.
size_t write_some_lines(std::string_view lines);

// Writes the lines. Those that would have to wait are dropped and counted, and a line with their
// number comes before the next ones.
void write_or_drop_lines(std::string_view lines);
// Counts the lines as dropped.
void count_dropped_lines(std::string_view lines) noexcept;

}  // namespace yard::base
