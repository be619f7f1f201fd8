// SPDX-License-Identifier: Apache-2.0
// A rule file and what a runtime knows: whether it makes sense here, and its rules compiled.
#pragma once

#include <yard/config.h>

#include <memory>
#include <string>
#include <vector>

#include "policy/file_rules.h"
#include "policy/modes.h"
#include "registry/changes.h"

namespace yard::runtime {

// Checks what was read against the registry and the modes that the program has added; `announced` are ops that
// plugins bring which are not loaded. Problems are added to the reading. Null if there is an error.
std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::Modes& modes,
                                                    const std::vector<std::string>& announced);

// What is wrong with the conditions of rules in force, now that more ops are known than when they were checked.
std::vector<ConfigProblem> wrong_conditions(const Config& config, const registry::State& state,
                                            const policy::Modes& modes,
                                            const std::vector<std::string>& announced);

// The first error with the others as its notes; fine if there is none.
Status first_error(const std::vector<ConfigProblem>& problems);

}  // namespace yard::runtime
