// SPDX-License-Identifier: Apache-2.0
// yard config: checks of rule files before they are in force, and their schema.
#include <fmt/format.h>
#include <yard/config.h>
#include <CLI/CLI.hpp>

#include "config_commands.h"
#include "terminal.h"

namespace yard::tool {

void add_config_schema(CLI::App& config, Action& action) {
  CLI::App* c = config.add_subcommand("schema", "JSON Schema of rule files, for editors");
  c->footer(
      "Generated from the tables that the parser uses. It does not contain names of ops and\n"
      "kernels; yard config check checks them.\n"
      "\n"
      "Examples:\n"
      "  yard config schema > rules.schema.json\n"
      "  # yaml-language-server: $schema=rules.schema.json       first line of a rule file");
  c->callback([&action] {
    action = [] {
      const std::string text = config_json_schema();
      fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
      return kOk;
    };
  });
}

void add_config(CLI::App& app, Action& action) {
  CLI::App* config =
      app.add_subcommand("config", "Check rule files, and show what they would change");
  config->require_subcommand(1);
  config->footer(
      "None of these commands puts rules in force.\n"
      "\n"
      "Examples:\n"
      "  yard config check rules.yaml                         whether it is valid\n"
      "  yard config diff old.yaml new.yaml                   which calls would change kernel\n"
      "  yard config simulate new.yaml --trace calls.txt      how many recorded calls would move\n"
      "  yard config schema > rules.schema.json               for editors\n"
      "  yard explain --config new.yaml 'softmax(f32[8,64])'  what one call would run, and why");
  add_config_check(*config, action);
  add_config_diff(*config, action);
  add_config_simulate(*config, action);
  add_config_schema(*config, action);
}

}  // namespace yard::tool
