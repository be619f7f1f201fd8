// SPDX-License-Identifier: Apache-2.0
#include "provider/eligibility.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/lists.h"
#include "base/log.h"
#include "policy/words.h"
#include "select/candidate_set.h"
#include "select/reasons.h"

namespace yard::provider {
namespace {

bool lists(const std::vector<std::string>& names, std::string_view name) {
  return base::contains(names, name);
}

// The strongest source that names the backend has disabled it; none: its own default.
std::string disabled_text(const Situation& s, const registry::Backend& b) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const auto named_by = [&](const Policy& from) { return from.backends.contains(b.name); };
  if (s.scope != nullptr && named_by(*s.scope)) return "switched off by a scope of the thread";
  if (named_by(p.set)) return "switched off by the program";
  if (named_by(p.environment))
    return fmt::format("switched off by {}",
                       p.by_own.contains(b.name) ? b.env : policy::backend_variable(b.name));
  if (p.file != nullptr && named_by(p.file->said)) return "switched off by the rule file";
  return fmt::format("switched off by default; {}=on enables it",
                     b.env.empty() ? policy::backend_variable(b.name) : b.env);
}

Eligibility of_function(const Situation& s, const FunctionRule& rule, std::string_view signature,
                        const registry::Hook& h) {
  if (!signature.empty() && h.signature != signature)
    return {YARD_REASON_REFUSED,
            fmt::format("its signature is {}, declared is {}", h.signature, signature),
            {}};
  const auto b = backend_of(*s.snapshot.state, h.backend);
  if (Eligibility e = by_policy(s, *b, &rule); !e.eligible()) return e;
  // A call names no device: it is the first one of the backend's type.
  Eligibility e = on_device(s, *b, {b->d.device_type, 0}, &h);
  // A backend that is on by itself is expected to be available.
  if (e.reason == YARD_REASON_UNAVAILABLE && b->d.enable == YARD_ENABLE_ON)
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("Backend '{}' is on and not available: {}", b->name, e.text));
  return e;
}

}  // namespace

std::string Eligibility::why() const {
  if (!breaker) return text;
  if (breaker->state == BreakerState::kHalfOpen)
    return "its breaker is half-open: one call at a time tries it";
  return "its breaker " + select::open_breaker_text(*breaker);
}

bool Eligibility::same_as(const Eligibility& o) const noexcept {
  if (reason != o.reason || text != o.text || breaker.has_value() != o.breaker.has_value())
    return false;
  return !breaker || (breaker->state == o.breaker->state && breaker->until == o.breaker->until &&
                      breaker->probes == o.breaker->probes);
}

Eligibility by_policy(const Situation& s, const registry::Backend& b, const FunctionRule* rule) {
  if (rule != nullptr && rule->enabled == false)
    return {YARD_REASON_DISABLED, "the rules switch the function off", {}};
  if (rule != nullptr && lists(rule->deny, b.name))
    return {YARD_REASON_DENIED_KERNEL, "denied by a rule", {}};
  switch (const int32_t reason = select::backend_reason(s.policy(), b)) {
    case YARD_REASON_NONE: break;
    case YARD_REASON_DENIED_VENDOR:
      return {reason, fmt::format("vendor '{}' is denied", b.vendor), {}};
    case YARD_REASON_NOT_ALLOWED_VENDOR:
      return {reason, fmt::format("vendor '{}' is not allowed", b.vendor), {}};
    default: return {reason, disabled_text(s, b), {}};
  }
  if (s.off())
    return {YARD_REASON_REFERENCE_ONLY,
            fmt::format("the master switch: every call is the {}",
                        rule != nullptr ? "original" : "default"),
            {}};
  if (s.snapshot.forked && (b.d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return {YARD_REASON_FORKED, "it cannot be used in a forked child", {}};
  if (rule != nullptr && rule->backends && !lists(*rule->backends, b.name))
    return {YARD_REASON_NOT_IN_ORDER, "the rules list other backends", {}};
  return {};
}

Eligibility on_device(const Situation& s, const registry::Backend& b, Device device,
                      const registry::Hook* function, bool any_device) {
  if (const registry::DeviceProbe& probe = b.probe(device, s.host); !probe.available) {
    std::string text = select::refusal(probe);
    if (text.empty()) text = fmt::format("it is not available on {}", to_string(device));
    return {YARD_REASON_UNAVAILABLE, std::move(text), {}};
  }
  const health::HealthSnapshot* health = s.snapshot.health.get();
  if (health == nullptr) return {};
  if (!any_device && health->is_lost(device))
    return {YARD_REASON_UNHEALTHY, fmt::format("device {} is lost", to_string(device)), {}};
  if (function == nullptr) return {};
  const health::Key key = health_key(*function);
  const health::HealthSnapshot::OfOp* of = health->of_op(key.op);
  const health::BreakerStatus* breaker = of != nullptr ? of->find(key) : nullptr;
  if (breaker == nullptr) return {};
  const bool open = breaker->state == BreakerState::kOpen;
  return {open ? YARD_REASON_UNHEALTHY : YARD_REASON_NONE, "", *breaker};
}

std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name) {
  if (const auto it = state.backends.find(name); it != state.backends.end()) return it->second;
  auto made = std::make_shared<registry::Backend>();
  made->name = name, made->d.device_type = 1;
  return made;
}

int priority_of(const registry::Hook& h) noexcept {
  return (h.d.flags & YARD_HOOK_LOWER_FIRST) != 0 ? -h.d.priority : h.d.priority;
}

health::Key health_key(const registry::Hook& h) {
  health::Key key;
  key.op = h.group + "/" + h.name, key.kernel = key.backend = h.backend;
  return key;
}

FunctionRule rule_for(const std::map<std::string, FunctionRule, std::less<>>& rules,
                      std::string_view group, std::string_view name) {
  FunctionRule to;
  const std::string whole = fmt::format("{}/{}", group, name);
  // A longer pattern is more exact, one without wildcards the most.
  std::vector<std::pair<std::pair<bool, size_t>, const FunctionRule*>> found;
  for (const auto& [key, rule] : rules) {
    const bool of_group = key.find('/') == key.npos;
    if (!glob_matches(key, of_group ? group : std::string_view(whole))) continue;
    const bool exact = !of_group && key.find_first_of("*?") == key.npos;
    found.push_back({{exact, key.size()}, &rule});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rank, rule] : found) {
    if (rule->enabled) to.enabled = rule->enabled;
    if (rule->backends) to.backends = rule->backends;
    to.deny.insert(to.deny.end(), rule->deny.begin(), rule->deny.end());
  }
  return to;
}

std::vector<Provider> function_providers(const Situation& s, std::string_view group,
                                         std::string_view name, std::string_view signature) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const FunctionRule rule =
      p.file != nullptr ? rule_for(p.file->config.functions, group, name) : FunctionRule();
  std::vector<Provider> to;
  for (const auto& hook : s.snapshot.state->functions) {
    if (hook->group != group || hook->name != name) continue;
    Provider provider{hook, of_function(s, rule, signature, *hook)};
    if (rule.backends)
      provider.place = static_cast<size_t>(
          std::find(rule.backends->begin(), rule.backends->end(), hook->backend) -
          rule.backends->begin());
    to.push_back(std::move(provider));
  }
  std::sort(to.begin(), to.end(), [](const Provider& a, const Provider& b) {
    const bool in = a.eligibility.eligible();
    if (in != b.eligibility.eligible()) return in;
    if (in && a.place != b.place) return a.place < b.place;
    const int pa = priority_of(*a.hook), pb = priority_of(*b.hook);
    if (in && pa != pb) return pa > pb;
    return a.hook->backend < b.hook->backend;
  });
  return to;
}

std::vector<Provider> hook_providers(const Situation& s, std::string_view name,
                                     std::string_view signature) {
  std::vector<Provider> to;
  for (const auto& h : s.snapshot.state->hooks)
    if (h->name == name && h->signature == signature)
      to.push_back({h, by_policy(s, *backend_of(*s.snapshot.state, h->backend))});
  return to;
}

}  // namespace yard::provider
