// SPDX-License-Identifier: Apache-2.0
// Reads rule files that the command line names, shows their problems, and puts their rules in
// force.
#pragma once

#include <yard/runtime.h>

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace yard::tool {

// Returns `rules.yaml:7:5: error: dispatch_rules[2].priority: ...`, in colour where stdout takes
// it.
std::string shown(const ConfigProblem& problem);

// Adds --config FILE; `to` must outlive the parse.
void add_config_option(CLI::App& command, std::string& to);

// Adds --program-mode NAME, which can be repeated. It names a mode that a program adds, so that
// rule files may use the name. The mode makes no choice here.
void add_mode_option(CLI::App& command);
// Registers the modes of --program-mode. Throws a Failure for an invalid mode.
int add_program_modes(Runtime& runtime);

// Puts the rules of a file in force, unless the path is empty. Writes problems to stderr. Returns
// exit code 2 for errors.
int use_config(Runtime& runtime, const std::string& path);

// Creates a runtime with the rules of a file. If the path is empty, it uses the file that the
// environment names. Reports an invalid file and then returns null.
std::unique_ptr<Runtime> runtime_under(const std::string& path);

}  // namespace yard::tool
