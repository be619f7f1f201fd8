// SPDX-License-Identifier: Apache-2.0
// The providers of a hook or of a dispatched function: in which order calls consider them, and why some are out.
//
// Decisions, their order and their reasons are those of ops (select/candidate_set.h): allowed, enabled, usable in this
// process, available, healthy.
#pragma once

#include <yard/config.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/snapshot.h"
#include "registry/changes.h"

namespace yard::provider {

// What decides: a snapshot, the host that probes ask, and perhaps the policy of a scope. Borrows all three.
class Situation {
 public:
  explicit Situation(const dispatch::Snapshot& s, const yard_host_t* h = nullptr,
                     const Policy* of_scope = nullptr)
      : snapshot(s), host(h), scope(of_scope) {
    if (scope != nullptr) merged_ = merge(s.policy->in_force, *scope);
  }
  const dispatch::Snapshot& snapshot;
  const yard_host_t* const host;
  const Policy* const scope;

  // In force, in the scope.
  const Policy& policy() const { return merged_ ? *merged_ : snapshot.policy->in_force; }
  // The master switch: every call of a function runs the original, every hook its default.
  bool off() const { return policy().reference_only.value_or(false); }

 private:
  std::optional<Policy> merged_;
};

struct Eligibility {
  int32_t reason = YARD_REASON_NONE;
  std::string text;  // explains the reason, unless it is an open breaker
  std::optional<health::BreakerStatus> breaker;  // unset: closed

  bool eligible() const noexcept { return reason == YARD_REASON_NONE; }
  // Nothing but its breaker rules it out.
  bool breaker_open() const noexcept { return breaker && breaker->state == BreakerState::kOpen; }
  // Of a half-open breaker, to be entered before the provider runs; else null.
  health::ProbeSlots* probes() const noexcept { return breaker ? breaker->probes.get() : nullptr; }
  // The text as of now: why it is out, or the state of a breaker that is not closed.
  std::string why() const;
  bool same_as(const Eligibility& other) const noexcept;
};

// By policy and process: allowed, enabled, usable after fork(). Runs no code of the backend. `rule` is that of the
// function, null for hooks.
Eligibility by_policy(const Situation& situation, const registry::Backend& backend,
                      const FunctionRule* rule = nullptr);
// By the machine: available on the device, the device not lost, the breaker of `function` not open. May run the probe of
// the backend. `any_device`: the device stands for all of its type, which are not all lost.
Eligibility on_device(const Situation& situation, const registry::Backend& backend, Device device,
                      const registry::Hook* function = nullptr, bool any_device = false);

// The record of a backend. One that only provides hooks or functions may have none: it has no vendor and no probe, and
// is enabled by default.
std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name);

// Higher first.
int priority_of(const registry::Hook& hook) noexcept;
// The key of an implementation in health: the function is the op, the backend the kernel.
health::Key health_key(const registry::Hook& implementation);
// All rules for one function merged, the most exact key last.
FunctionRule rule_for(const std::map<std::string, FunctionRule, std::less<>>& rules,
                      std::string_view group, std::string_view name);

struct Provider {
  std::shared_ptr<const registry::Hook> hook;
  Eligibility eligibility;
  size_t place = 0;  // in the order of backends that a rule gives
};

// The eligible ones in the order of calls, then the others by backend. `signature` empty: any. May run probes.
std::vector<Provider> function_providers(const Situation& situation, std::string_view group,
                                         std::string_view name, std::string_view signature);
// In the order of registration, decided by policy and process: availability and health are checked on activation.
std::vector<Provider> hook_providers(const Situation& situation, std::string_view name,
                                     std::string_view signature);

}  // namespace yard::provider
