// SPDX-License-Identifier: Apache-2.0
// Plugins as the commands of `yard plugin` show them.
#pragma once

#include <yard/runtime.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace yard::tool {

nlohmann::ordered_json to_json(const PluginInfo& plugin);

// "writable_by_others: the file can be written by everybody"; empty if it was not refused.
std::string why_refused(const PluginInfo& plugin);
// "rms_norm, softmax", or "-".
std::string joined(const std::vector<std::string>& words);

// People name files from where they are; the library wants to know where that is.
std::string absolute(const std::string& path);
// A runtime that looks for nothing by itself.
RuntimeSettings looks_for_nothing();

}  // namespace yard::tool
