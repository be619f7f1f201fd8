// SPDX-License-Identifier: Apache-2.0
// What breakers say, in words.
#include <fmt/format.h>
#include <yard/health.h>

#include "base/text.h"
#include "health/events.h"

namespace yard {
const char* to_string(BreakerState state) noexcept {
  switch (state) {
    case BreakerState::kClosed: return "closed";
    case BreakerState::kOpen: return "open";
    case BreakerState::kHalfOpen: return "half_open";
  }
  return "?";
}

const char* to_string(BreakerEvent::Kind kind) noexcept {
  switch (kind) {
    case BreakerEvent::Kind::kOpened: return "opened";
    case BreakerEvent::Kind::kHalfOpen: return "half_open";
    case BreakerEvent::Kind::kClosed: return "closed";
    case BreakerEvent::Kind::kWouldOpen: return "would_open";
    case BreakerEvent::Kind::kDeviceLost: return "device_lost";
    case BreakerEvent::Kind::kDeviceBack: return "device_back";
  }
  return "?";
}

std::string to_string(const BreakerEvent& e) {
  std::string text = fmt::format("{}: {}", e.subject, to_string(e.kind));
  if (e.kind == BreakerEvent::Kind::kOpened)
    text += e.until == std::chrono::steady_clock::time_point::max()
                ? " until it is closed manually"
                : " for " + base::seconds_text(e.until - e.at);
  return e.text.empty() ? text : text + ": " + e.text;
}

namespace health {

std::string after_failures(uint32_t in_a_row, std::string_view last) {
  return fmt::format("{} failure{} in a row{}{}", in_a_row, in_a_row == 1 ? "" : "s",
                     last.empty() ? "" : ", the last: ", cut(last));
}

std::string after_probe(std::string_view why) {
  return fmt::format("a probe failed{}{}", why.empty() ? "" : ": ", cut(why));
}

}  // namespace health
}  // namespace yard
