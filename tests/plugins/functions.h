// SPDX-License-Identifier: Apache-2.0
// Shared by the program and the plugin of functions.cc.
#pragma once

#include <yard/verdict.h>

#include <atomic>
#include <cstdint>

namespace yard::testing {

struct Target {
  int64_t lanes = 0;
#ifdef WIDER
  int64_t features = 0;
#endif
};

struct Gate {
  std::atomic<bool> inside{false}, open{false};
};

}  // namespace yard::testing
