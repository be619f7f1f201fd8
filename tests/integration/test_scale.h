// SPDX-License-Identifier: Apache-2.0
// How long the long tests are. TEST_SCALE multiplies the rounds of those that are declared with
// SCALES in CMakeLists.txt; without it they have as many as every change can afford.
#pragma once

#include <yard/abi.h>

#include <cstdlib>

namespace yard::testing {

inline int scaled(int rounds) {
  const char* scale = std::getenv("TEST_SCALE");
  const int factor = scale != nullptr ? std::atoi(scale) : 1;
  return rounds * (factor > 0 ? factor : 1);
}

// Fewer under a sanitizer, which makes a round many times as long and finds what is illegal in any of them. Rare
// combinations are for the release build.
template <class Number>
constexpr Number fewer(Number rounds) {
#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
  return rounds / 4;
#else
  return rounds;
#endif
}

}  // namespace yard::testing
