// SPDX-License-Identifier: Apache-2.0
// Validation of breaker settings. In this layer because rule files and breakers both need it.
#include <fmt/format.h>
#include <yard/health.h>

#include "base/text.h"

namespace yard {
namespace {

using std::chrono::nanoseconds;
constexpr nanoseconds kShortest = std::chrono::milliseconds(1), kLongest = std::chrono::hours(24);
constexpr uint32_t kMostCalls = 10'000;

Status wrong(const char* what, const std::string& found, const std::string& right) {
  return Status(Code::kInvalidArgument, fmt::format("{} is {}; expected {}", what, found, right));
}

Status check(const char* what, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return {};
  return wrong(what, std::to_string(value), fmt::format("from {} to {}", least, most));
}

Status check(const char* what, nanoseconds value) {
  if (value >= kShortest && value <= kLongest) return {};
  return wrong(
      what, base::seconds_text(value),
      fmt::format("from {} to {}", base::seconds_text(kShortest), base::seconds_text(kLongest)));
}

}  // namespace

Status validate(const BreakerSettings& s) {
  YARD_RETURN_IF_ERROR(check("failure_threshold", s.failure_threshold, 1, kMostCalls));
  YARD_RETURN_IF_ERROR(check("failure_percent", s.failure_percent, 0, 100));
  YARD_RETURN_IF_ERROR(check("failure_min_calls", s.failure_min_calls, 1, kMostCalls));
  YARD_RETURN_IF_ERROR(check("failure_window", s.failure_window));
  YARD_RETURN_IF_ERROR(check("cooldown", s.cooldown));
  if (!(s.cooldown_growth >= 1 && s.cooldown_growth <= 100))
    return wrong("cooldown_growth", fmt::format("{}", s.cooldown_growth), "from 1 to 100");
  YARD_RETURN_IF_ERROR(check("cooldown_cap", s.cooldown_cap));
  if (s.cooldown_cap < s.cooldown)
    return wrong("cooldown_cap", base::seconds_text(s.cooldown_cap),
                 "no less than cooldown, " + base::seconds_text(s.cooldown));
  YARD_RETURN_IF_ERROR(check("success_threshold", s.success_threshold, 1, kMostCalls));
  return check("half_open_max_calls", s.half_open_max_calls, 1, kMostCalls);
}

}  // namespace yard
