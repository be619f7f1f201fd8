// SPDX-License-Identifier: Apache-2.0
// Plugins as the commands of `yard plugin` show them.
#pragma once

#include <yard/runtime.h>

#include <string>
#include <vector>

#include "json.h"

namespace CLI {
class App;
}

namespace yard::tool {

Json to_json(const PluginInfo& plugin);

// "writable_by_others: the file can be written by everybody"; empty if it was not refused.
std::string why_refused(const PluginInfo& plugin);
// "rms_norm, softmax", or "-".
std::string joined(const std::vector<std::string>& words);

// Adds --device-feature DEVICE:NAME, which may be given again: what the program will have stated of its devices. It
// holds for the runtimes below.
void add_feature_option(CLI::App& command);
// An error if one of those is no such thing.
Status check_features();

// People name files from where they are; the library wants to know where that is.
std::string absolute(const std::string& path);
// A runtime of this environment that looks at these as well, before all others.
RuntimeSettings looks_also_at(const std::vector<std::string>& paths);
// The same, with the features that were given.
RuntimeSettings as_the_environment_has_it();
// A runtime that looks for nothing by itself.
RuntimeSettings looks_for_nothing();

}  // namespace yard::tool
