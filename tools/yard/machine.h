// SPDX-License-Identifier: Apache-2.0
// What machine this is, and how much of it this process may use.
#pragma once

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
  bool membarrier = false;  // the kernel offers what lets calls go without a fence
};
Machine look_at_machine();

// A feature of this architecture that kernels can ask for.
struct Feature {
  std::string name;
  bool usable = false;
  bool listed = false;  // the operating system shows it to programs
};
std::vector<Feature> look_at_features();

}  // namespace yard::tool
