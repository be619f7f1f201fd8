// SPDX-License-Identifier: Apache-2.0
// Keys of overlays, what they override, and the settings of an op under policy, rule file and override.
#include "dispatch/overlay.h"

#include <fmt/format.h>

#include <functional>

#include "dispatch/scope.h"
#include "dispatch/snapshot.h"

namespace yard::dispatch {
namespace {

void mix(uint64_t& h, uint64_t word) noexcept {
  h = (h ^ word) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
}
void mix(uint64_t& h, std::string_view text) noexcept {
  mix(h, std::hash<std::string_view>()(text));
}

// A hash need not cover every field: keys are compared in full.
void mix(uint64_t& h, const Policy& p) noexcept {
  mix(h, static_cast<uint64_t>(p.prefer ? static_cast<int>(*p.prefer) : -1));
  mix(h, static_cast<uint64_t>(p.strict ? *p.strict + 1 : 0) * 4 +
             static_cast<uint64_t>(p.reference_only ? *p.reference_only + 1 : 0));
  for (const std::string& s : p.deny_kernels) mix(h, s);
  for (const std::string& s : p.deny_vendors) mix(h, s);
  for (const auto& [op, kernel] : p.locks) mix(h, kernel);
  for (const auto& [op, on] : p.transforms) mix(h, on ? 1 : 0), mix(h, op);
  for (const auto& [op, order] : p.per_op)
    for (const std::string& token : order) mix(h, token);
}

}  // namespace

OverlayKey OverlayKey::make(const Options* o, const ScopeState* scope, bool labelled,
                            bool rollout) {
  OverlayKey key;
  key.scope = scope != nullptr ? scope->policy_id : 0;
  key.rollout = rollout;
  key.labelled = labelled && o != nullptr && !o->labels.empty();
  if (o != nullptr && (o->policy || !o->force.empty() || !o->deny.empty() || o->mode ||
                       !o->mode_name.empty() || key.labelled))
    key.options = o;
  key.hash = key.scope * 0x9e3779b97f4a7c15ull;
  if (key.options == nullptr && !rollout) return key;
  uint64_t h = key.hash;
  mix(h, rollout ? 2 : 1);
  if (key.options != nullptr) {
    if (o->policy) mix(h, *o->policy);
    mix(h, o->force);
    for (const std::string& d : o->deny) mix(h, d);
    mix(h, o->mode ? static_cast<uint64_t>(*o->mode) + 1 : 0);
    mix(h, o->mode_name);
    if (key.labelled)
      for (const auto& [name, value] : o->labels) mix(h, name), mix(h, value);
  }
  key.hash = h | 1;
  return key;
}

bool OverlayKey::operator==(const OverlayKey& o) const noexcept {
  if (hash != o.hash || scope != o.scope || labelled != o.labelled || rollout != o.rollout ||
      (options == nullptr) != (o.options == nullptr))
    return false;
  if (options == nullptr) return true;
  const Options &a = *options, &b = *o.options;
  return a.force == b.force && a.deny == b.deny && a.mode == b.mode && a.mode_name == b.mode_name &&
         a.policy == b.policy && (!labelled || a.labels == b.labels);
}

void apply_override(const PolicyOverride& extra, const policy::Modes& modes,
                    policy::ClauseSources& sources, select::OpSettings& settings) {
  sources.policy = merge(sources.policy, extra.policy);
  sources.force = extra.force;
  sources.deny = extra.deny;
  if (!extra.mode.empty()) policy::set_mode(sources.mode, modes, extra.mode, extra.mode_by);
  if (!extra.labels.empty()) settings.labels = labels_over(extra.labels, settings.labels);
}

select::OpSettings settings_for(const Snapshot& snapshot, const policy::ProcessPolicy& policy,
                                const std::string& op) {
  select::OpSettings d;
  d.labels = policy.labels;
  d.watch.rollout = policy.rollout;
  d.watch.observers = snapshot.observers;
  if (snapshot.health->of_op(op) != nullptr || !snapshot.health->devices_lost().empty())
    d.health = snapshot.health;
  if (policy.file == nullptr) return d;
  const ConfigSettings& settings = policy.file->config.settings;
  d.cache.enabled = settings.cache.enabled.value_or(true);
  d.cache.plans = static_cast<size_t>(settings.cache.size.value_or(0));
  d.cache.lifetime = settings.cache.lifetime.value_or(std::chrono::nanoseconds(0));
  if (const auto& n = settings.max_fallback_attempts) d.fallbacks = static_cast<size_t>(*n);
  return d;
}

Result<PolicyOverride> make_override(const Options* o, const ScopeState* scope,
                                     const OverlayKey& key, const policy::Modes& modes) {
  PolicyOverride p;
  if (scope != nullptr) {
    if (scope->policy_id != 0) p.policy = scope->content.policy;
    p.labels = scope->content.labels;
    p.mode = scope->content.mode, p.mode_by = "scope";
  }
  if (key.options != nullptr) {
    if (o->mode) p.mode = to_string(*o->mode), p.mode_by = "call";
    if (!o->mode_name.empty()) p.mode = o->mode_name, p.mode_by = "call";
    if (key.labelled)
      for (const auto& [name, value] : o->labels) p.labels[name] = value;
    if (o->policy) p.policy = merge(p.policy, *o->policy);
    p.force = o->force, p.deny = o->deny;
  }
  if (!p.mode.empty())
    if (Status s = policy::check_mode_name(p.mode, &modes); !s.ok())
      return std::move(s).note(fmt::format("set by the {}", p.mode_by));
  return p;
}

}  // namespace yard::dispatch
