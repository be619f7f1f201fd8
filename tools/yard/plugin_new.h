// SPDX-License-Identifier: Apache-2.0
// yard plugin new: a plugin project that builds and passes its tests unchanged.
#pragma once

#include "commands.h"

namespace yard::tool {

// Below `plugin`.
void add_plugin_new(CLI::App& plugin, Action& action);

}  // namespace yard::tool
