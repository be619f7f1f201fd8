// SPDX-License-Identifier: Apache-2.0
// Options and arguments that commands share: what they accept, and the message for everything else. Messages read
// `--seconds: expected a number from 0 to 3600, got 'x'`.
#pragma once

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace yard::tool {

// A file that exists.
CLI::Validator existing_file();
// One of these words.
CLI::Validator one_of(std::vector<std::string> words);
// A number between these, both included.
template <class T>
CLI::Validator between(T low, T high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        T value{};
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high)
          return std::string();
        return fmt::format("expected a {}number from {} to {}, got '{}'",
                           std::is_integral_v<T> ? "whole " : "", low, high, text);
      },
      "");
}

// What is wrong with the command line; `command` is the one that was chosen.
std::string message_of(const CLI::ParseError& error, CLI::App& command);

}  // namespace yard::tool
