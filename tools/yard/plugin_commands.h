// SPDX-License-Identifier: Apache-2.0
// The commands below `yard plugin`, but for `new`.
#pragma once

#include "commands.h"

namespace yard::tool {

void add_plugin_list(CLI::App& plugin, Action& action);
void add_plugin_inspect(CLI::App& plugin, Action& action);
void add_plugin_lock(CLI::App& plugin, Action& action);
void add_plugin_probe(CLI::App& plugin, Action& action);
void add_plugin_upgrade(CLI::App& plugin, Action& action);

}  // namespace yard::tool
