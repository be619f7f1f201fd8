// SPDX-License-Identifier: Apache-2.0
// Calls an empty op on three tensors through PyTorch's dispatcher, for comparison.
#pragma once

#include <vector>

#include "bench/paths.h"

namespace yard::bench {

// Returns torch_typed and torch_boxed with their own tensors, or an empty list in a build without
// libtorch.
std::vector<tool::Path> torch_paths();

}  // namespace yard::bench
