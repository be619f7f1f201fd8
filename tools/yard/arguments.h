// SPDX-License-Identifier: Apache-2.0
// Helpers for options and arguments that several commands share. Errors read like `--seconds:
// expected a number from 0 to 3600, got 'x'`.
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

// Splits the text at each of the separators and keeps empty parts.
std::vector<std::string> split(const std::string& text, std::string_view separators);

CLI::Validator existing_file();
CLI::Validator one_of(std::vector<std::string> words);
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

// Adds an option with a value; the help shows `type` as the name of the value. An option for a list
// takes one value each time it is given.
template <class T>
CLI::Option* add_value(CLI::App& command, const std::string& name, T& to, const std::string& type,
                       const std::string& help) {
  return command.add_option(name, to, help)->type_name(type)->allow_extra_args(false);
}
// Adds an option or argument for one file or a list of files. Each file must exist.
template <class T>
CLI::Option* add_file(CLI::App& command, const std::string& name, T& to, const std::string& help) {
  return command.add_option(name, to, help)->type_name("FILE")->check(existing_file());
}

// Adds a command whose options are members of a Q. The Q lives as long as the command. `run(Q&)`
// does the work and returns the exit code.
template <class Q, class Run>
std::pair<CLI::App*, std::shared_ptr<Q>> add_command(CLI::App& parent, Action& action,
                                                     const std::string& name,
                                                     const std::string& text, Run run) {
  auto q = std::make_shared<Q>();
  CLI::App* const c = parent.add_subcommand(name, text);
  if constexpr (requires { q->json; })
    c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->callback([q, &action, run] { action = [q, run] { return run(*q); }; });
  return {c, std::move(q)};
}

// Returns the message for an invalid command line. `command` is the chosen command.
std::string message_of(const CLI::ParseError& error, CLI::App& command);

// The options for policy and calls. Every command that makes a choice has them.
struct PolicyFlags {
  std::string prefer, order, lock, force;
  std::vector<std::string> deny_vendor, allow_vendor, deny, allow, backend, label;
  bool strict = false, reference_only = false, no_transforms = false;
  bool deterministic = false, inference = false, capturing = false;

  // This object must outlive the parse.
  void add(CLI::App& command);

  // Returns the options for a call of `op`, or an error that names the option with an invalid
  // value.
  Result<Options> options(const std::string& op) const;
};

}  // namespace yard::tool
