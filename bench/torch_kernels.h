// SPDX-License-Identifier: Apache-2.0
// The built-in ops as compositions of PyTorch's own, to measure ours beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yard::bench {

// One way to compute the op with PyTorch.
struct TorchWay {
  const char* name;
  std::function<void()> run;
};

// On [rows, hidden]; heads of 128, a quarter as many for keys. Empty where PyTorch is not installed.
std::vector<TorchWay> torch_ways(const std::string& op, const std::string& dtype, int64_t rows,
                                 int64_t hidden);

}  // namespace yard::bench
