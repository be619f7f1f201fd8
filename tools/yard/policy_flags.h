// SPDX-License-Identifier: Apache-2.0
// Policy and call options from the command line, the same for every command that makes a choice.
#pragma once

#include <yard/options.h>
#include <yard/result.h>

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yard::tool {

struct PolicyFlags {
  std::string prefer, order, lock, force;
  std::vector<std::string> deny_vendor, allow_vendor, deny, allow, backend, label;
  bool strict = false, reference_only = false, no_transforms = false;
  bool deterministic = false, inference = false, capturing = false;

  // Adds the options; this object must outlive the parse.
  void add(CLI::App& command);

  // The options for a call of `op`. An invalid value is an error that names the option.
  Result<Options> options(const std::string& op) const;
};

}  // namespace yard::tool
