// SPDX-License-Identifier: Apache-2.0
// The commands below `yard config`.
#pragma once

#include "commands.h"

namespace yard::tool {

void add_config_check(CLI::App& config, Action& action);
void add_config_diff(CLI::App& config, Action& action);
void add_config_simulate(CLI::App& config, Action& action);
void add_config_schema(CLI::App& config, Action& action);

}  // namespace yard::tool
