// SPDX-License-Identifier: Apache-2.0
// Writes the output of the command. Results go to a private copy of the original stdout. Descriptor
// 1 is redirected to stderr, so that a kernel that prints cannot damage the results. The command
// fails if results cannot be written. Messages that cannot be written are lost.
//
// print_out(), print_err() and write_escaped() escape control characters, apart from newlines, tabs
// and the command's own colours.
#pragma once

#include <fmt/format.h>
#include <yard/status.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace yard::tool {

// Must be called first. Opens stdin, stdout and stderr if they are closed, and makes a closed pipe
// or a file size limit an error instead of a signal.
void start_output();

// Must be called last. Writes the rest and returns `code`, or 1 instead of 0 if writing fails.
int finish_output(int code);
// Like finish_output(), for a forked child whose parent calls finish_output().
int finish_child_output(int code);
// Must be called before a fork, because otherwise both processes write the buffered text.
void flush_output();

bool output_is_terminal();
// Returns the descriptor of the original stdout, for a signal handler.
int output_descriptor();

// write_out() writes the text to the original stdout unchanged; write_escaped() escapes it first.
void write_out(std::string_view text);
void write_escaped(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_escaped(fmt::format(format, std::forward<Args>(args)...));
}

// Writes to stderr, after all results so far.
void write_err(std::string_view text);
std::string escaped(std::string_view text);
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(escaped(fmt::format(format, std::forward<Args>(args)...)));
}

// Indents all lines after the first, so that none looks like another message.
std::string message_lines(std::string_view text);

// Reads a file or pipe. Fails if it has more than `most` bytes.
Result<std::string> read_input(const std::string& path, size_t most);

}  // namespace yard::tool
