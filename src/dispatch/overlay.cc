// SPDX-License-Identifier: Apache-2.0
#include "dispatch/overlay.h"

#include <fmt/format.h>

#include "dispatch/core.h"

namespace yard::dispatch {
namespace {

void mix(uint64_t& h, uint64_t word) noexcept {
  h = (h ^ word) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
}
void mix(uint64_t& h, std::string_view text) noexcept {
  mix(h, std::hash<std::string_view>()(text));
}

// The hash need not cover every field, because keys are compared in full.
void mix(uint64_t& h, const Policy& p) noexcept {
  if (p.prefer) mix(h, static_cast<uint64_t>(*p.prefer) + 1);
  for (const std::string& s : p.deny_kernels) mix(h, s);
  for (const std::string& s : p.deny_vendors) mix(h, s);
  for (const auto& [op, kernel] : p.locks) mix(h, kernel);
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

static select::OpSettings settings_for(const Snapshot& snapshot,
                                       const policy::ProcessPolicy& policy, const std::string& op) {
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

Result<select::CandidateParts> parts_for(const Core& core, const Snapshot& snapshot,
                                         const policy::ProcessPolicy& policy, const std::string& op,
                                         const OverlayKey& key, const ScopeContent& scope) {
  const auto& op_record = snapshot.state->op_records.find(op)->second;
  select::CandidateParts parts{op_record,
                               policy::sources_for(policy, op_record->op->program),
                               {core.host, snapshot.forked},
                               settings_for(snapshot, policy, op)};
  policy::ClauseSources& sources = parts.sources;
  std::string mode = scope.mode;
  const char* mode_by = "scope";
  auto labels = scope.labels;
  sources.policy = merge(sources.policy, scope.policy);
  if (const Options* const o = key.options) {
    if (o->policy) sources.policy = merge(sources.policy, *o->policy);
    sources.force = o->force;
    sources.deny = o->deny;
    if (o->mode || !o->mode_name.empty()) {
      mode = o->mode ? to_string(*o->mode) : o->mode_name;
      mode_by = "call";
    }
    if (key.labelled)
      for (const auto& [name, value] : o->labels) labels[name] = value;
  }
  if (!mode.empty()) {
    if (Status s = policy::check_mode_name(mode, policy.modes.get()); !s.ok())
      return std::move(s).note(fmt::format("set by the {}", mode_by));
    policy::set_mode(sources.mode, *policy.modes, mode, mode_by);
  }
  if (!labels.empty()) parts.settings.labels = labels_over(labels, parts.settings.labels);
  return parts;
}

}  // namespace yard::dispatch
