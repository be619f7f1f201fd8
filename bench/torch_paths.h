// SPDX-License-Identifier: Apache-2.0
// PyTorch's dispatcher on the same empty op on three tensors, measured beside ours.
#pragma once

#include <vector>

#include "bench/paths.h"

namespace yard::bench {

// torch_typed and torch_boxed, each time with tensors of their own; none when built without libtorch.
std::vector<tool::Path> torch_paths();

}  // namespace yard::bench
