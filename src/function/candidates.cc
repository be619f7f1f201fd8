// SPDX-License-Identifier: Apache-2.0
#include "function/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "policy/words.h"

namespace yard::function {
namespace {

bool lists(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Out {
  int32_t reason = YARD_REASON_NONE;
  std::string detail;
  explicit operator bool() const noexcept { return reason != YARD_REASON_NONE; }
};

// Strongest first: the program, YARD_BACKEND_NAME, the backend's own variable, the rule file, its default.
Out switched_off(const Situation& s, const registry::Backend& b) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const auto said = [&](const Policy& from, std::string_view who) -> std::optional<Out> {
    const auto it = from.backends.find(b.name);
    if (it == from.backends.end()) return std::nullopt;
    if (it->second) return Out{};
    return Out{YARD_REASON_DISABLED, fmt::format("switched off by {}", who)};
  };
  if (auto out = said(p.set, "the program")) return *out;
  const std::string variable = p.by_own.contains(b.name) ? b.env : policy::backend_variable(b.name);
  if (auto out = said(p.environment, variable)) return *out;
  if (p.file != nullptr)
    if (auto out = said(p.file->said, "the rule file")) return *out;
  if (b.d.enable != YARD_ENABLE_OFF) return {};
  return {YARD_REASON_DISABLED,
          fmt::format("off unless it is switched on: {}=on",
                      b.env.empty() ? policy::backend_variable(b.name) : b.env)};
}

Out denied(const Policy& p, const FunctionRule& rule, const registry::Backend& b) {
  if (rule.enabled == false) return {YARD_REASON_DISABLED, "the rules switch the function off"};
  if (lists(rule.deny, b.name)) return {YARD_REASON_DENIED_KERNEL, "denied by a rule"};
  if (rule.backends && !lists(*rule.backends, b.name))
    return {YARD_REASON_NOT_IN_ORDER, "the rules list other backends"};
  if (!b.vendor.empty() && lists(p.deny_vendors, b.vendor))
    return {YARD_REASON_DENIED_VENDOR, fmt::format("vendor '{}' is denied", b.vendor)};
  if (!b.vendor.empty() && p.allow_vendors && !lists(*p.allow_vendors, b.vendor))
    return {YARD_REASON_NOT_ALLOWED_VENDOR, fmt::format("vendor '{}' is not allowed", b.vendor)};
  return {};
}

Out unavailable(const Situation& s, const registry::Backend& b) {
  if (s.snapshot.forked && (b.d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return {YARD_REASON_FORKED, "it cannot be used in a forked child"};
  const registry::Probe& probe = b.probe({b.d.device_type, 0}, s.host);
  if (probe.available) return {};
  // Whoever is switched on is expected to be there.
  if (b.d.enable == YARD_ENABLE_ON)
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("Backend '{}' is on and not available: {}", b.name, probe.text));
  return {YARD_REASON_UNAVAILABLE, probe.text};
}

// What its breaker says, if anything; and whether the device that it is for is lost. A call names no device: it is
// the one that the backend's probe is asked about.
Out unhealthy(const Situation& s, const registry::Backend& b, const registry::Hook& h,
              std::optional<health::BreakerStatus>& breaker) {
  const health::HealthSnapshot* view = s.snapshot.health.get();
  if (view == nullptr) return {};
  const Device device{b.d.device_type, 0};
  if (view->is_lost(device))
    return {YARD_REASON_UNHEALTHY, fmt::format("device {} is lost", to_string(device))};
  const health::Key key = health_key(h);
  const health::HealthSnapshot::OfOp* of = view->of_op(key.op);
  const health::BreakerStatus* found = of != nullptr ? of->find(key) : nullptr;
  if (found == nullptr) return {};
  breaker = *found;
  if (found->state != BreakerState::kOpen) return {};
  return {YARD_REASON_UNHEALTHY, found->until == health::kManual ? "its breaker was opened manually"
                                                                 : "its breaker is open"};
}

Out judge(const Situation& s, const FunctionRule& rule, std::string_view signature,
          const registry::Hook& h, std::optional<health::BreakerStatus>& breaker) {
  if (!signature.empty() && h.signature != signature)
    return {YARD_REASON_REFUSED,
            fmt::format("its signature is {}, declared is {}", h.signature, signature)};
  const auto it = s.snapshot.state->backends.find(h.backend);
  // One that is only a name has no probe and no default of its own.
  registry::Backend nameless;
  nameless.name = h.backend, nameless.d.device_type = 1;
  const registry::Backend& b = it != s.snapshot.state->backends.end() ? *it->second : nameless;
  if (s.off()) return {YARD_REASON_REFERENCE_ONLY, "the master switch: every call is the original"};
  if (Out out = denied(s.snapshot.policy->in_force, rule, b)) return out;
  if (Out out = switched_off(s, b)) return out;
  if (Out out = unavailable(s, b)) return out;
  return unhealthy(s, b, h, breaker);
}

}  // namespace

bool Situation::off() const { return snapshot.policy->in_force.reference_only.value_or(false); }

health::Key health_key(const registry::Hook& h) {
  health::Key key;
  key.op = h.group + "/" + h.name, key.kernel = key.backend = h.backend;
  return key;
}

std::string breaker_text(const health::BreakerStatus& breaker) {
  if (breaker.until == health::kManual) return "its breaker was opened manually";
  const auto left =
      std::chrono::ceil<std::chrono::seconds>(breaker.until - std::chrono::steady_clock::now());
  return fmt::format("its breaker is open; probes begin in {} s",
                     std::max<int64_t>(left.count(), 0));
}

FunctionRule rule_for(const std::map<std::string, FunctionRule, std::less<>>& rules,
                      std::string_view group, std::string_view name) {
  FunctionRule to;
  const std::string whole = fmt::format("{}/{}", group, name);
  // From the least exact to the most: a longer pattern is more exact, one without wildcards the most.
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

std::vector<Candidate> candidates(const Situation& s, std::string_view group, std::string_view name,
                                  std::string_view signature) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const FunctionRule rule =
      p.file != nullptr ? rule_for(p.file->config.functions, group, name) : FunctionRule();
  std::vector<Candidate> to;
  for (const auto& hook : s.snapshot.state->functions) {
    if (hook->group != group || hook->name != name) continue;
    std::optional<health::BreakerStatus> breaker;
    Out out = judge(s, rule, signature, *hook, breaker);
    size_t place = 0;
    if (rule.backends)
      place = static_cast<size_t>(
          std::find(rule.backends->begin(), rule.backends->end(), hook->backend) -
          rule.backends->begin());
    to.push_back({hook, out.reason, std::move(out.detail), place, std::move(breaker)});
  }
  std::sort(to.begin(), to.end(), [](const Candidate& a, const Candidate& b) {
    const bool a_out = a.reason != YARD_REASON_NONE, b_out = b.reason != YARD_REASON_NONE;
    if (a_out != b_out) return b_out;
    if (!a_out && a.place != b.place) return a.place < b.place;
    if (!a_out && a.priority() != b.priority()) return a.priority() > b.priority();
    return a.hook->backend < b.hook->backend;
  });
  return to;
}

}  // namespace yard::function
