// SPDX-License-Identifier: Apache-2.0
// Rule files named on the command line: shows their problems and puts them in force for this process.
#pragma once

#include <yard/runtime.h>

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace yard::tool {

// `rules.yaml:7:5: error: dispatch_rules[2].priority: ...`, in colour where stdout takes it.
std::string shown(const ConfigProblem& problem);

// Adds --config FILE; `to` must outlive the parse.
void add_config_option(CLI::App& command, std::string& to);

// Adds --program-mode NAME, repeatable: a mode that the program will have added, so that rule files may
// name it. Here it makes no choice.
void add_mode_option(CLI::App& command);
// Gives these modes to a runtime; errors are exit code 2.
int add_program_modes(Runtime& runtime);

// Puts a file in force; an empty path changes nothing. Problems go to stderr; errors are exit code 2.
int use_config(Runtime& runtime, const std::string& path);

// A runtime as this environment makes it, with a file; an empty path: the file that the environment names. Null
// if the file is invalid, which has been reported then.
std::unique_ptr<Runtime> runtime_under(const std::string& path);

}  // namespace yard::tool
