// SPDX-License-Identifier: Apache-2.0
// How long the long tests are. TEST_SCALE multiplies the rounds of those that are declared with
// SCALES in CMakeLists.txt; without it they have as many as every change can afford.
#pragma once

#include <cstdlib>

namespace yard::testing {

inline int scaled(int rounds) {
  const char* scale = std::getenv("TEST_SCALE");
  const int factor = scale != nullptr ? std::atoi(scale) : 1;
  return rounds * (factor > 0 ? factor : 1);
}

}  // namespace yard::testing
