// SPDX-License-Identifier: Apache-2.0
// What the command writes. Results go to the stdout that it was started with, by a descriptor of its own: a kernel that
// prints to stdout or redirects it changes no result, since stdout is stderr meanwhile. Results that cannot be written
// are a failure; messages that cannot be written are lost.
//
// Control characters do not reach a terminal or a log: all but newlines, tabs and the command's own colours are escaped.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace yard::tool {

// Called first: opens what is missing of stdin, stdout and stderr, and makes a closed pipe or a file limit an error
// instead of a signal.
void start_output();

// Called last: writes what is left, and returns the exit code: `code`, or 1 instead of 0 if results could not be written.
int finish_output(int code);
// The same for a forked child, whose parent calls finish_output().
int finish_child_output(int code);
// Before a fork: what is left would be written twice.
void flush_output();

// Whether stdout, as it was at the start, is a terminal.
bool output_is_terminal();
// Its descriptor, for a signal handler.
int output_descriptor();

// To stdout: as it is, and escaped.
void write_out(std::string_view text);
void write_escaped(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_escaped(fmt::format(format, std::forward<Args>(args)...));
}

// To stderr, after all results so far.
void write_err(std::string_view text);
std::string escaped(std::string_view text);
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(escaped(fmt::format(format, std::forward<Args>(args)...)));
}

// A message for stderr: lines after the first are indented, so that none looks like another message.
std::string message_lines(std::string_view text);

}  // namespace yard::tool
