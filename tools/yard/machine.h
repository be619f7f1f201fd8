// SPDX-License-Identifier: Apache-2.0
// The machine, how much of it this process may use, and the environment variables for Switchyard.
#pragma once

#include <yard/runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace yard::tool {

struct Machine {
  std::string architecture;  // "aarch64"
  std::string cpu;           // "Neoverse-N1"
  std::string system;        // "Linux 6.1.0"
  int cores = 0;             // online
  double cores_allowed = 0;  // by affinity and control group; 1.5 is possible there
  uint64_t memory = 0;       // bytes
  uint64_t memory_allowed = 0;
  bool membarrier = false;  // the operating system offers it, so calls need no fence
};
Machine look_at_machine();

// A feature of this architecture that kernels can require.
struct Feature {
  std::string name;
  bool usable = false;
  bool listed = false;  // the operating system reports it
};
std::vector<Feature> look_at_features();

// A variable, with the problems that the runtime reports for it.
struct Variable {
  std::string name, value;
  std::vector<std::string> problems;  // what is wrong, and what was expected
};

// Every YARD_* variable of this process, by name.
std::vector<Variable> look_at_environment(const Runtime& runtime);

}  // namespace yard::tool
