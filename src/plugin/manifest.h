// SPDX-License-Identifier: Apache-2.0
// Reads the manifest of a plugin before any of its code runs, and says why plugins are refused.
#pragma once

#include <fmt/format.h>

#include "base/lists.h"
#include "registry/interfaces.h"

namespace yard::plugin {

using Reason = PluginReason;

struct Refusal {
  Reason reason = Reason::kNone;
  std::string detail;

  Refusal() = default;
  Refusal(Reason r, std::string d) : reason(r), detail(std::move(d)) {}
  Refusal(Reason r, const Status& why);  // includes the notes
  template <class First, class... Rest>
  Refusal(Reason r, fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : reason(r),
        detail(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
  bool refused() const noexcept { return reason != Reason::kNone; }
};

// Returns text like "plugin /opt/acme.so is refused: other_sanitizer: it was built with ...".
Status to_status(const std::string& path, const Refusal& refusal);

struct RefusalReason {
  const char* name;  // "other_sanitizer"
  Code code;         // of the Status that carries the reason
};
// In the order of PluginReason. docs/reference/plugin_reasons.md explains each reason.
std::span<const RefusalReason> reasons() noexcept;

#define YARD_RETURN_IF_REFUSED(expr)                                                 \
  do {                                                                               \
    if (::yard::plugin::Refusal yard_r_ = (expr); yard_r_.refused()) return yard_r_; \
  } while (false)

using base::contains;

struct Manifest {
  uint32_t abi = 0;
  std::string arch, sanitizer, name, version, build;
  std::vector<std::string> devices, features, ops, groups;  // `groups` are groups of functions

  const std::vector<std::string>& offers(registry::PluginOffer what) const noexcept {
    return what == registry::PluginOffer::kOp ? ops : groups;
  }
  bool operator==(const Manifest&) const = default;
};

// Reads `key=value` lines, and skips unknown keys. After a refusal, `to` is unspecified.
Refusal parse_manifest(std::string_view text, Manifest& to);

struct Process {
  uint32_t newest_abi = YARD_ABI_VERSION, oldest_abi = 0;
  std::string_view arch = YARD_ARCH_, sanitizer = YARD_SANITIZER_;
  const yard_host_t* host = nullptr;  // asked for features
};
Refusal check_manifest(const Manifest& manifest, const Process& process);

}  // namespace yard::plugin
