// SPDX-License-Identifier: Apache-2.0
// Environment variables for Switchyard, with the problems that the runtime reports for each.
#pragma once

#include <yard/runtime.h>

#include <string>
#include <vector>

namespace yard::tool {

struct Variable {
  std::string name, value;
  std::vector<std::string> problems;  // what is wrong, and what was expected
};

// Every YARD_* variable of this process, by name.
std::vector<Variable> look_at_environment(const Runtime& runtime);

}  // namespace yard::tool
