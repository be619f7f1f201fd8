// SPDX-License-Identifier: Apache-2.0
// Why a plugin was refused: a reason of the table, and details.
#pragma once

#include <yard/plugins.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace yard::plugin {

struct Refusal {
  PluginReason reason = PluginReason::kNone;
  std::string detail;

  Refusal() = default;
  Refusal(PluginReason r, std::string d) : reason(r), detail(std::move(d)) {}
  bool refused() const noexcept { return reason != PluginReason::kNone; }
};

// "plugin /opt/acme.so is refused: other_sanitizer: it was built with ..."
Status to_status(const std::string& path, const Refusal& refusal);

struct ReasonInfo {
  PluginReason reason;
  const char* name;     // "other_sanitizer"
  const char* meaning;  // one sentence, also in docs/reference/plugin_reasons.md
  Code code;            // of the Status that carries it
};
// Every reason, in order.
std::span<const ReasonInfo> reasons() noexcept;

// Returns the refusal from the function, if there is one.
#define YARD_RETURN_IF_REFUSED(expr)                                                 \
  do {                                                                               \
    if (::yard::plugin::Refusal yard_r_ = (expr); yard_r_.refused()) return yard_r_; \
  } while (false)

}  // namespace yard::plugin
