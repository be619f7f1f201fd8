// SPDX-License-Identifier: Apache-2.0
// Modes that the program has added, by name.
#pragma once

#include <yard/options.h>
#include <yard/policy.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace yard::policy {

// Immutable once published.
struct ProgramMode {
  const char* name;  // never freed: result records point to it
  ModeProvider provider;
};
using Modes = std::map<std::string, std::shared_ptr<const ProgramMode>, std::less<>>;

// An error if the name is invalid or taken, or if the provider has no function.
Result<std::shared_ptr<const ProgramMode>> make_mode(std::string_view name, ModeProvider provider);

// All names of modes: auto, static, dynamic, config, hot_reload and those of `modes`, which may be null.
std::vector<std::string> mode_names(const Modes* modes);
// An error if no mode has the name.
Status check_mode_name(std::string_view name, const Modes* modes);

}  // namespace yard::policy
