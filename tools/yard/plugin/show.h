// SPDX-License-Identifier: Apache-2.0
// Plugins as commands show them: their manifests, and what they announce before they are opened.
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

// "writable_by_others: it can be written by everybody". Empty if it was not refused.
std::string why_refused(const PluginInfo& plugin);
// "rms_norm, softmax", or "-".
std::string joined(const std::vector<std::string>& words);

// Adds --device-feature DEVICE:NAME, repeatable: features of devices that a program would state. It
// applies to the runtimes below.
void add_feature_option(CLI::App& command);
// An error if one of the features is invalid.
Status check_features();

// Makes a path absolute, which users give relative to the current directory.
std::string absolute(const std::string& path);
// A runtime of this environment that searches these paths before all others.
RuntimeSettings looks_also_at(const std::vector<std::string>& paths);
// The same, with the features that were given.
RuntimeSettings as_the_environment_has_it();
// A runtime that searches no paths by itself.
RuntimeSettings looks_for_nothing();

// An op or a group of a plugin that has not been opened.
struct Announced {
  std::string name, plugin, path;
};

// Where a plugin's manifest has them: &PluginInfo::ops or groups.
using Announcement = std::vector<std::string> PluginInfo::*;

std::vector<Announced> announced(const Runtime& runtime, Announcement what);

// An error with the reason if one of these files, which the user named, is refused.
Status none_refused(const Runtime& runtime, const std::vector<std::string>& paths);
// Opens the plugins that announce any; stops at the first that cannot be opened.
Status open_announced(Runtime& runtime, Announcement what);

}  // namespace yard::tool
