// SPDX-License-Identifier: Apache-2.0
// Numbers for tensors to be tested with.
#pragma once

#include <yard/call_spec.h>

#include "tune/elements.h"

namespace yard::tune {

// What integers of a tensor may be: from `least` to below `most`.
struct Integers {
  int64_t least = 0;
  int64_t most = 1024;
};

void fill(const TensorView& view, Random random, Contents contents, Integers integers);

}  // namespace yard::tune
