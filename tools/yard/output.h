// SPDX-License-Identifier: Apache-2.0
// What the command writes. Results go to the stdout that it was started with, by a descriptor of
// its own, and stdout becomes stderr, so that a kernel that prints does not change results. Results
// that cannot be written are a failure. Messages that cannot be written are lost.
//
// Control characters other than newlines, tabs and the command's own colours are escaped.
#pragma once

#include <fmt/format.h>
#include <yard/status.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace yard::tool {

// Must be called first. Opens those of stdin, stdout and stderr that are closed, and makes a closed
// pipe or a file limit an error instead of a signal.
void start_output();

// Must be called last. Writes the rest and returns `code`, or 1 instead of 0 if that fails.
int finish_output(int code);
// The same for a forked child, whose parent calls finish_output().
int finish_child_output(int code);
// Must be called before a fork, because the rest would be written twice.
void flush_output();

// Whether stdout, as it was at the start, is a terminal.
bool output_is_terminal();
// Its descriptor, for a signal handler.
int output_descriptor();

// Write to stdout, as it is and escaped.
void write_out(std::string_view text);
void write_escaped(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_escaped(fmt::format(format, std::forward<Args>(args)...));
}

// Write to stderr, after all results so far.
void write_err(std::string_view text);
std::string escaped(std::string_view text);
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(escaped(fmt::format(format, std::forward<Args>(args)...)));
}

// A message whose later lines are indented, so that none looks like another message.
std::string message_lines(std::string_view text);

// ---- Files ----

// The text of a file or pipe. An error if it has more than `most` bytes.
Result<std::string> read_input(const std::string& path, size_t most);

}  // namespace yard::tool
