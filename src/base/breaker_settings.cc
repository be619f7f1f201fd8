// SPDX-License-Identifier: Apache-2.0
// Validates breaker settings for rule files and breakers.
#include <fmt/format.h>
#include <yard/health.h>

#include "base/results.h"
#include "base/text.h"

namespace yard {
namespace {

Status check(const char* what, double value, double least, double most, const char* unit = "") {
  if (value >= least && value <= most) return {};
  return base::invalid("{} is {}{}; expected from {}{} to {}{}", what, value, unit, least, unit,
                       most, unit);
}

Status check(const char* what, std::chrono::nanoseconds value) {
  return check(what, std::chrono::duration<double>(value).count(), 0.001, 86400, "s");
}

}  // namespace

Status validate(const BreakerSettings& s) {
  constexpr double kMostCalls = 10'000;
  YARD_RETURN_IF_ERROR(check("failure_threshold", s.failure_threshold, 1, kMostCalls));
  YARD_RETURN_IF_ERROR(check("failure_percent", s.failure_percent, 0, 100));
  YARD_RETURN_IF_ERROR(check("failure_min_calls", s.failure_min_calls, 1, kMostCalls));
  YARD_RETURN_IF_ERROR(check("failure_window", s.failure_window));
  YARD_RETURN_IF_ERROR(check("cooldown", s.cooldown));
  YARD_RETURN_IF_ERROR(check("cooldown_growth", s.cooldown_growth, 1, 100));
  YARD_RETURN_IF_ERROR(check("cooldown_cap", s.cooldown_cap));
  if (s.cooldown_cap < s.cooldown)
    return base::invalid("cooldown_cap is {}; expected no less than cooldown, {}",
                         base::seconds_text(s.cooldown_cap), base::seconds_text(s.cooldown));
  YARD_RETURN_IF_ERROR(check("success_threshold", s.success_threshold, 1, kMostCalls));
  return check("half_open_max_calls", s.half_open_max_calls, 1, kMostCalls);
}

}  // namespace yard
