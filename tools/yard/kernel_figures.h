// SPDX-License-Identifier: Apache-2.0
// Results of `yard bench kernels`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yard::tool {

struct KernelFigure {
  std::string id;
  double ns = 0;
  double over_copy = 0;   // speed over the copy's
  bool selected = false;  // runs for a call without options
};

// One call, with every kernel that can serve it.
struct CallFigures {
  std::string op, dtype, call;
  int64_t rows = 0;
  uint64_t bytes = 0;  // of all tensors, once
  double copy_ns = 0;
  int copy_threads = 1;
  std::vector<KernelFigure> kernels;
  std::vector<std::pair<std::string, std::string>> skipped;  // id, reason
};

}  // namespace yard::tool
