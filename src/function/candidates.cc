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
  if (auto out = said(p.environment, policy::backend_variable(b.name))) return *out;
  if (const auto it = s.variables.find(b.env); !b.env.empty() && it != s.variables.end()) {
    const std::string_view value = base::trim(it->second);
    if (!value.empty() && !base::same_word(value, "auto")) {
      const auto on = policy::read_switch(value);
      if (on.ok())
        return *on ? Out{} : Out{YARD_REASON_DISABLED, fmt::format("switched off by {}", b.env)};
      base::log(LogLevel::kWarn, "policy",
                fmt::format("{}={}: on, off or auto would be right; backend '{}' stays at its "
                            "default",
                            b.env, base::excerpt(value), b.name));
    }
  }
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
    return {YARD_REASON_FORKED, "it cannot be used in a child of fork"};
  const registry::Probe& probe = b.probe({b.d.device_type, 0}, s.host);
  if (probe.available) return {};
  // Whoever is switched on is expected to be there.
  if (b.d.enable == YARD_ENABLE_ON)
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("Backend '{}' is on and not available: {}", b.name, probe.text));
  return {YARD_REASON_UNAVAILABLE, probe.text};
}

Out judge(const Situation& s, const FunctionRule& rule, std::string_view signature,
          const registry::Hook& h) {
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
  return unavailable(s, b);
}

}  // namespace

bool Situation::off() const { return snapshot.policy->in_force.reference_only.value_or(false); }

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
    Out out = judge(s, rule, signature, *hook);
    size_t place = 0;
    if (rule.backends)
      place = static_cast<size_t>(
          std::find(rule.backends->begin(), rule.backends->end(), hook->backend) -
          rule.backends->begin());
    to.push_back({hook, out.reason, std::move(out.detail), place});
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
