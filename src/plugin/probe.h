// SPDX-License-Identifier: Apache-2.0
// Trying a library in a process of its own: starts the program `yard-probe` on it, with limits, and tells what
// became of that. What the program does is src/runtime/probe_child.cc.
#pragma once

#include <yard/plugins.h>

#include <string>
#include <vector>

#include "base/file.h"

namespace yard::plugin {

struct ProbeRequest {
  const base::File& file;             // what is tried, whatever its path means meanwhile
  std::vector<std::string> others;    // files of plugins it may build on
  std::vector<std::string> features;  // of devices, as the program has stated them
  const PluginSettings& settings;
};

// `report.reason` and what follows from it; its `info` is left alone. Waits for the child, at most as long as
// the settings say.
void run_probe(const ProbeRequest& request, ProbeReport& report);

// The program: as the settings have it, or where it lies beside this library. Empty with `why` if it is not
// there or cannot be trusted.
std::string find_probe_program(const PluginSettings& settings, std::string& why);

}  // namespace yard::plugin
