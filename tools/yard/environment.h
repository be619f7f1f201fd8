// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that are meant for Switchyard, with what the runtime says of each.
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
