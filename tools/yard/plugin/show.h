// SPDX-License-Identifier: Apache-2.0
// Shows plugins: their manifests, and what they announce before they are opened.
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

// Returns "writable_by_others: ..." with the detail, or only the detail if the plugin was not
// refused.
std::string why_refused(const PluginInfo& plugin);
// Joins words as in "rms_norm, softmax". Returns "-" if there are none.
std::string joined(const std::vector<std::string>& words);

// Adds --device-feature DEVICE:NAME, which can be repeated. It states device features as a program
// would, for all settings that the functions below return.
void add_feature_option(CLI::App& command);
Status check_features();

// Resolves a path relative to the current directory.
std::string absolute(const std::string& path);
// Returns settings for this environment that also search these paths.
RuntimeSettings looks_also_at(const std::vector<std::string>& paths);
// Returns settings for this environment.
RuntimeSettings as_the_environment_has_it();
// Returns settings without built-in backends, environment variables and installed plugins.
RuntimeSettings looks_for_nothing();

// An op or a group that a plugin announces before it is opened.
struct Announced {
  std::string name, plugin, path;
};

// Selects the announcements of a manifest: &PluginInfo::ops or &PluginInfo::groups.
using Announcement = std::vector<std::string> PluginInfo::*;

std::vector<Announced> announced(const Runtime& runtime, Announcement what);

// Fails with the reason if a file that the user named is refused.
Status none_refused(const Runtime& runtime, const std::vector<std::string>& paths);
// Opens all plugins with such announcements. Stops at the first that cannot be opened.
Status open_announced(Runtime& runtime, Announcement what);

}  // namespace yard::tool
