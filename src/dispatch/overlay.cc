// SPDX-License-Identifier: Apache-2.0
// Keys of overlays, what they override, and the settings of an op under policy, rule file and override.
#include "dispatch/overlay.h"

#include <fmt/format.h>

#include <functional>
#include <string_view>

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
  key.hash = scope_hash(key.scope);
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

policy::ClauseSources with_override(policy::ClauseSources sources, const policy::Modes& modes,
                                    const PolicyOverride& extra) {
  sources.policy = merge(sources.policy, extra.policy);
  sources.force = extra.force;
  sources.deny = extra.deny;
  if (!extra.mode.empty()) policy::set_mode(sources.mode, modes, extra.mode, extra.mode_by);
  return sources;
}

select::OpSettings settings_for(const policy::ProcessPolicy& policy) {
  select::OpSettings d;
  d.labels = policy.labels;
  d.watch.rollout = policy.rollout;
  if (policy.file == nullptr) return d;
  const ConfigSettings& settings = policy.file->config.settings;
  d.cache.enabled = settings.cache.enabled.value_or(true);
  d.cache.plans = static_cast<size_t>(settings.cache.size.value_or(0));
  d.cache.lifetime = settings.cache.lifetime.value_or(std::chrono::nanoseconds(0));
  if (const auto& n = settings.max_fallback_attempts) d.fallbacks = static_cast<size_t>(*n);
  return d;
}

select::OpSettings settings_for(select::OpSettings of_process, const PolicyOverride& extra) {
  if (extra.labels.empty()) return of_process;
  std::map<std::string, std::string, std::less<>> all = extra.labels;
  all.insert(of_process.labels.begin(), of_process.labels.end());
  of_process.labels.assign(all.begin(), all.end());
  return of_process;
}

select::OpSettings settings_for(const Snapshot& snapshot, const registry::OpRecord& op_record) {
  select::OpSettings d = settings_for(*snapshot.policy);
  d.watch.observers = snapshot.observers;
  const health::HealthSnapshot* h = snapshot.health.get();
  if (h != nullptr && (h->of_op(op_record.op->name) != nullptr || !h->devices_lost().empty()))
    d.health = snapshot.health;
  return d;
}

PolicyOverride make_override(const Options* o, const ScopeState* scope, const OverlayKey& key) {
  PolicyOverride p;
  p.key = key;
  if (scope != nullptr && scope->policy_id != 0) p.policy = scope->content.policy;
  if (scope != nullptr) p.labels = scope->content.labels;
  if (scope != nullptr && !scope->content.mode.empty())
    p.mode = scope->content.mode, p.mode_by = "scope";
  if (key.options == nullptr) return p;
  if (o->mode) p.mode = to_string(*o->mode), p.mode_by = "call";
  if (!o->mode_name.empty()) p.mode = o->mode_name, p.mode_by = "call";
  if (key.labelled)
    for (const auto& [name, value] : o->labels) p.labels[name] = value;
  if (o->policy) p.policy = merge(p.policy, *o->policy);
  p.force = o->force;
  p.deny = o->deny;
  return p;
}

Status check_override(const PolicyOverride& extra, const policy::Modes& modes) {
  if (extra.mode.empty()) return {};
  Status s = policy::check_mode_name(extra.mode, &modes);
  if (!s.ok()) s.note(fmt::format("set by the {}", extra.mode_by));
  return s;
}

}  // namespace yard::dispatch
