// SPDX-License-Identifier: Apache-2.0
// What plugins announce before they are opened: ops, hooks, and groups of functions.
#pragma once

#include <yard/runtime.h>

#include <string>
#include <vector>

namespace yard::tool {

// An op, a hook or a group of a plugin that has not been opened.
struct Announced {
  std::string name, plugin, path;
};

// Where a plugin's manifest has them: &PluginInfo::ops, hooks or groups.
using Announcement = std::vector<std::string> PluginInfo::*;

std::vector<Announced> announced(const Runtime& runtime, Announcement what);

// An error with the reason if one of these files, which the user named, is refused.
Status none_refused(const Runtime& runtime, const std::vector<std::string>& paths);
// Opens the plugins that announce any; stops at the first that cannot be opened.
Status open_announced(Runtime& runtime, Announcement what);

}  // namespace yard::tool
