// SPDX-License-Identifier: Apache-2.0
// Time: a stopwatch, and the date of log lines and dumps.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

namespace yard::base {

// For spans of one thread: a reading costs little beside the calls that it times.
class Stopwatch {
 public:
  // Does not run.
  Stopwatch() = default;
  static Stopwatch start() noexcept {
    Stopwatch s;
    s.last_ = ticks();
    return s;
  }
  // Nanoseconds since it was started, or since the last lap.
  int64_t lap() noexcept {
    const uint64_t now = ticks();
    return ns_between(std::exchange(last_, now), now);
  }

  // The processor's counter behind the steady clock, read directly: that takes a quarter to a half of the time.
  static uint64_t ticks() noexcept;
  static double ns_per_tick() noexcept;  // within one percent
  static int64_t ns_between(uint64_t from, uint64_t to) noexcept {
    const auto passed = static_cast<int64_t>(to - from);
    // Counters of different cores may differ a little.
    return passed > 0 ? static_cast<int64_t>(static_cast<double>(passed) * ns_per_tick()) : 0;
  }

 private:
  uint64_t last_ = 0;
};

// Coordinated universal time, without the C library's gmtime_r: that takes a lock that another thread may have held at a
// fork.
struct UtcTime {
  explicit UtcTime(std::chrono::system_clock::time_point at) noexcept {
    using namespace std::chrono;
    const auto day_of = floor<days>(at);
    const year_month_day date(day_of);
    const hh_mm_ss time(floor<milliseconds>(at) - day_of);
    year = static_cast<int>(date.year());
    month = static_cast<unsigned>(date.month()), day = static_cast<unsigned>(date.day());
    hour = static_cast<int>(time.hours().count()),
    minute = static_cast<int>(time.minutes().count());
    second = static_cast<int>(time.seconds().count());
    millisecond = static_cast<int>(time.subseconds().count());
  }
  int year, hour, minute, second, millisecond;
  unsigned month, day;
};

}  // namespace yard::base
