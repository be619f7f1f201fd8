// SPDX-License-Identifier: Apache-2.0
// Measuring times in nanoseconds by the steady clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

namespace yard::base {

inline int64_t steady_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  // Does not run.
  Stopwatch() = default;
  static Stopwatch start() noexcept {
    Stopwatch s;
    s.last_ = steady_ns();
    return s;
  }
  // Nanoseconds since it was started, or since the last lap.
  int64_t lap() noexcept {
    const int64_t now = steady_ns();
    return now - std::exchange(last_, now);
  }

 private:
  int64_t last_ = 0;
};

}  // namespace yard::base
