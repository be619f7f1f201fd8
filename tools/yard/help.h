// SPDX-License-Identifier: Apache-2.0
// Generates the help texts and the manual page from the commands and options that are parsed.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace yard::tool {

// Returns the words that name a command, such as "yard plugin list".
std::string full_name(const CLI::App& app);
std::vector<CLI::App*> commands_below(CLI::App& app);
std::vector<std::string> command_names(CLI::App& app);
// Returns null if no command has this name.
CLI::App* command_named(CLI::App& app, const std::string& name);
// Returns a line such as "yard plugin list [OPTIONS] [PATH ...]".
std::string usage_of(CLI::App& app);
// Returns the name that the help shows for an option's value, such as "FILE". Flags and arguments
// have none, so the result is empty.
std::string value_name(const CLI::Option& option);

// Attaches the texts of help.txt to the commands. The help of a command shows its text after its
// options.
void add_help_texts(CLI::App& root);
std::string help_text(CLI::App& app);
// Returns a page in the format of man(7) that covers all commands.
std::string manual_page(CLI::App& root);

}  // namespace yard::tool
