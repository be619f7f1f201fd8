// SPDX-License-Identifier: Apache-2.0
// Help, from the tree of commands and options that parses them: as text, and as a manual page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace yard::tool {

// "yard plugin list"
std::string full_name(const CLI::App& app);
std::vector<CLI::App*> commands_below(CLI::App& app);
std::vector<std::string> command_names(CLI::App& app);
// Returns null if there is none.
CLI::App* command_named(CLI::App& app, const std::string& name);
// "yard plugin list [OPTIONS] [PATH ...]"
std::string usage_of(CLI::App& app);
// What the help calls an option's value: "FILE"; empty for flags and arguments.
std::string value_name(const CLI::Option& option);

// Gives the commands of the tree the texts of help.txt, which follow the options in their help.
void add_help_texts(CLI::App& root);
std::string help_text(CLI::App& app);
// In the format of man(7), with all commands.
std::string manual_page(CLI::App& root);

}  // namespace yard::tool
