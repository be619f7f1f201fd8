// SPDX-License-Identifier: Apache-2.0
// Replaces torch_paths.cc if libtorch is not installed.
#include "torch_paths.h"

namespace yard::bench {

std::vector<tool::Path> torch_paths() { return {}; }

}  // namespace yard::bench
