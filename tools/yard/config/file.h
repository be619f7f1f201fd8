// SPDX-License-Identifier: Apache-2.0
// Rule files that the command line names: shows their problems and puts them in force in this
// process.
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

// Adds --program-mode NAME, which can be repeated: a mode that the program adds, so that rule files
// may name it. Here it makes no choice.
void add_mode_option(CLI::App& command);
// Gives these modes to a runtime. Returns exit code 2 for errors.
int add_program_modes(Runtime& runtime);

// Puts a file in force, unless the path is empty. Writes problems to stderr. Returns exit code 2
// for errors.
int use_config(Runtime& runtime, const std::string& path);

// A runtime in this environment with a rule file, or with the file that the environment names if
// the path is empty. Returns null after reporting an invalid file.
std::unique_ptr<Runtime> runtime_under(const std::string& path);

}  // namespace yard::tool
