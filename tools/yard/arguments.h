// SPDX-License-Identifier: Apache-2.0
// Options and arguments that commands share: what they accept, and the message for everything else. Messages read
// `--seconds: expected a number from 0 to 3600, got 'x'`.
#pragma once

#include <fmt/format.h>
#include <yard/options.h>
#include <yard/status.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"

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

// Adds a command. Its options are members of a Q, which lives as long as the command; `run` does it, given the Q, and
// returns the exit code.
template <class Q, class Run>
std::pair<CLI::App*, std::shared_ptr<Q>> add_command(CLI::App& parent, Action& action,
                                                     const std::string& name,
                                                     const std::string& text, Run run) {
  auto q = std::make_shared<Q>();
  CLI::App* const c = parent.add_subcommand(name, text);
  c->callback([q, &action, run] { action = [q, run] { return run(*q); }; });
  return {c, std::move(q)};
}

// What is wrong with the command line; `command` is the one that was chosen.
std::string message_of(const CLI::ParseError& error, CLI::App& command);

// Policy and call options, the same for every command that makes a choice.
struct PolicyFlags {
  std::string prefer, order, lock, force;
  std::vector<std::string> deny_vendor, allow_vendor, deny, allow, backend, label;
  bool strict = false, reference_only = false, no_transforms = false;
  bool deterministic = false, inference = false, capturing = false;

  // Adds the options; this object must outlive the parse.
  void add(CLI::App& command);

  // The options for a call of `op`. An invalid value is an error that names the option.
  Result<Options> options(const std::string& op) const;
};

}  // namespace yard::tool
