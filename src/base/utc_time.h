// SPDX-License-Identifier: Apache-2.0
// Coordinated universal time without the C library's gmtime_r, which takes a lock that a thread of the parent may have
// held at a fork.
#pragma once

#include <chrono>

namespace yard::base {

struct UtcTime {
  explicit UtcTime(std::chrono::system_clock::time_point at) noexcept
      : UtcTime(std::chrono::floor<std::chrono::milliseconds>(at)) {}

  int year;
  unsigned month, day;
  int hour, minute, second, millisecond;

 private:
  using Milliseconds = std::chrono::sys_time<std::chrono::milliseconds>;
  explicit UtcTime(Milliseconds at) noexcept
      : UtcTime(std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(at)),
                std::chrono::hh_mm_ss(at - std::chrono::floor<std::chrono::days>(at))) {}
  UtcTime(std::chrono::year_month_day date,
          std::chrono::hh_mm_ss<std::chrono::milliseconds> time) noexcept
      : year(static_cast<int>(date.year())),
        month(static_cast<unsigned>(date.month())),
        day(static_cast<unsigned>(date.day())),
        hour(static_cast<int>(time.hours().count())),
        minute(static_cast<int>(time.minutes().count())),
        second(static_cast<int>(time.seconds().count())),
        millisecond(static_cast<int>(time.subseconds().count())) {}
};

}  // namespace yard::base
