// SPDX-License-Identifier: Apache-2.0
// Who is asked when a function is called, in which order, and why others are not: backends that are there, switched
// on, available and not ruled out.
#pragma once

#include <yard/config.h>
#include <yard/detail/function.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/snapshot.h"
#include "registry/changes.h"

namespace yard::function {

// What decides.
struct Situation {
  const dispatch::Snapshot& snapshot;
  const yard_host_t* host;

  // Whether every call is the original's.
  bool off() const;
};

struct Candidate {
  std::shared_ptr<const registry::Hook> hook;
  int32_t reason = YARD_REASON_NONE;  // NONE: calls ask it
  std::string detail;                 // for people
  size_t place = 0;                   // in the order that rules state
  // What its breaker says, unless it is closed. Open: it is out, with the reason `unhealthy`.
  std::optional<health::BreakerStatus> breaker;
  int priority() const noexcept {
    return (hook->d.flags & YARD_HOOK_LOWER_FIRST) != 0 ? -hook->d.priority : hook->d.priority;
  }
};

// What the rules say of one function, all that match together.
FunctionRule rule_for(const std::map<std::string, FunctionRule, std::less<>>& rules,
                      std::string_view group, std::string_view name);

// What health knows an implementation by: the function as op, the backend as kernel.
health::Key health_key(const registry::Hook& implementation);
// When an open breaker lets it be tried again, for people.
std::string breaker_text(const health::BreakerStatus& breaker);

// Those that calls ask, in order; then the others by backend. `signature` empty: of any. May run probes of backends.
std::vector<Candidate> candidates(const Situation& situation, std::string_view group,
                                  std::string_view name, std::string_view signature);

}  // namespace yard::function
