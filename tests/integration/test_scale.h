// SPDX-License-Identifier: Apache-2.0
// The length of the long tests. TEST_SCALE multiplies the rounds of tests that are declared with
// SCALES in CMakeLists.txt. The default is short enough to run for every change.
#pragma once

#include <yard/abi.h>

#include <cstdlib>

namespace yard::testing {

inline int scaled(int rounds) {
  const char* scale = std::getenv("TEST_SCALE");
  const int factor = scale != nullptr ? std::atoi(scale) : 1;
  return rounds * (factor > 0 ? factor : 1);
}

// Reduces the rounds under a sanitizer, which is many times slower and finds undefined behaviour in
// any round. The release build covers rare combinations.
template <class Number>
constexpr Number fewer(Number rounds) {
#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
  return rounds / 4;
#else
  return rounds;
#endif
}

}  // namespace yard::testing
