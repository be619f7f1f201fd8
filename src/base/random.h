// SPDX-License-Identifier: Apache-2.0
// Random numbers for sampling calls. Not for cryptography.
#pragma once

#include <cstdint>

namespace yard::base {

// Each thread has its own sequence (splitmix64), and a new one in a forked child.
uint64_t thread_random() noexcept;

// Returns true for one call in `n` at random, and always for 0 and 1.
inline bool one_in(uint64_t n) noexcept { return n <= 1 || thread_random() <= UINT64_MAX / n; }

// Returns a uniform number in [0, 1).
inline double random_unit() noexcept {
  return static_cast<double>(thread_random() >> 11) * 0x1p-53;
}

}  // namespace yard::base
