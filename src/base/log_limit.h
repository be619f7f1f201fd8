// SPDX-License-Identifier: Apache-2.0
// For messages about something that may happen thousands of times a second: at most one a second, which
// says how many were left out before it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace yard::base {

class LogLimit {
 public:
  static constexpr std::chrono::nanoseconds kInterval = std::chrono::seconds(1);

  // Whether to write one now; if so, `left_out` says how many have not been written since the last.
  bool admits(std::chrono::steady_clock::time_point now, uint64_t& left_out) noexcept {
    const int64_t t = now.time_since_epoch().count();
    int64_t next = next_.load(std::memory_order_relaxed);
    if (t < next ||
        !next_.compare_exchange_strong(next, t + kInterval.count(), std::memory_order_relaxed)) {
      left_out_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    left_out = left_out_.exchange(0, std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<int64_t> next_{INT64_MIN};
  std::atomic<uint64_t> left_out_{0};
};

}  // namespace yard::base
