// SPDX-License-Identifier: Apache-2.0
// Times in nanoseconds by the steady clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace yard::base {

inline int64_t steady_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace yard::base
