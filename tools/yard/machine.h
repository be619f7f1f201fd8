// SPDX-License-Identifier: Apache-2.0
// Describes the machine, the share of it that this process may use, and the YARD_* variables.
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
  double cores_allowed = 0;  // limited by affinity and control group; may be 1.5
  uint64_t memory = 0;       // bytes
  uint64_t memory_allowed = 0;
  bool membarrier = false;  // if true, calls need no fence
};
Machine look_at_machine();

struct Feature {
  std::string name;
  bool usable = false;
  bool listed = false;  // /proc/cpuinfo lists it
};
std::vector<Feature> look_at_features();

struct Variable {
  std::string name, value;
  std::vector<std::string> problems;  // each says what was found and what was expected
};

// Returns every YARD_* variable of this process, sorted by name.
std::vector<Variable> look_at_environment(const Runtime& runtime);

}  // namespace yard::tool
