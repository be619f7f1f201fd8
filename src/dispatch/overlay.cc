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

namespace {

// A name that has been checked.
void set_mode(select::OpSettings& d, const std::string& name, const char* by) {
  d.mode.source = by;
  d.mode.program = nullptr;
  if (const auto mode = parse_mode(name)) {
    d.mode.mode = *mode;
  } else if (const auto it = d.mode.added->find(name); it != d.mode.added->end()) {
    d.mode.mode = Mode::kProgram;
    d.mode.program = it->second;
  }
}

// "static_kernel_map (rules.yaml:7)"
std::string placed(const Config& config, const std::string& what, const KernelRef& ref) {
  const std::string place = policy::place_text(config, ref.at);
  return what + (place.empty() ? " of the rules" : place);
}

// "fallback_chains.rms_norm (rules.yaml:9)"
std::string chain_text(const Config& config, const std::string& op) {
  const std::vector<KernelRef>& chain = policy::chain_of(config, op);
  for (const auto& [pattern, kernels] : config.fallback_chains)
    if (&kernels == &chain) return placed(config, "fallback_chains." + pattern, chain[0]);
  return placed(config, "defaults.fallback_policy", chain[0]);
}

}  // namespace

select::OpSettings settings_for(const policy::ProcessPolicy& policy,
                                const registry::OpRecord& op_record) {
  select::OpSettings d;
  d.labels = policy.labels;
  d.mode.added = policy.modes;
  d.watch.observers = policy.observers;
  d.watch.rollout = policy.rollout;
  d.watch.float_state = policy.reading->good.check_float_state.value_or(false);
  const std::string& op = op_record.op->name;
  const auto& mapped = policy.mapped.kernels();
  if (const auto it = mapped.find(op); it != mapped.end())
    d.rules.mapped = it->second, d.rules.mapped_by = "the program's static map";
  if (policy.file == nullptr) return d;
  const Config& config = policy.file->config;
  if (const std::string* mode = policy::mode_of(config, op)) set_mode(d, *mode, "file");
  d.rules.file = policy.file;
  d.rules.compiled = policy.file->rules_for(op_record.op->program);
  const KernelRef* said = policy::find_for_op(config.static_kernel_map, op);
  if (said != nullptr && d.rules.mapped.empty())
    d.rules.mapped = said->id, d.rules.mapped_by = placed(config, "static_kernel_map", *said);
  for (const KernelRef& k : policy::chain_of(config, op)) d.rules.chain.push_back(k.id);
  if (!d.rules.chain.empty()) d.rules.chain_by = chain_text(config, op);
  for (const std::string& mode : config.settings.mode_fallback)
    if (const auto m = parse_mode(mode)) d.mode.fallback.push_back(*m);
  d.cache.enabled = config.settings.cache.enabled.value_or(true);
  d.cache.plans = static_cast<size_t>(config.settings.cache.size.value_or(0));
  d.cache.lifetime = config.settings.cache.lifetime.value_or(std::chrono::nanoseconds(0));
  if (const auto& n = config.settings.max_fallback_attempts) d.fallbacks = static_cast<size_t>(*n);
  return d;
}

select::OpSettings settings_for(select::OpSettings of_process, const PolicyOverride& extra) {
  if (!extra.mode.empty()) set_mode(of_process, extra.mode, extra.mode_by);
  if (extra.labels.empty()) return of_process;
  std::map<std::string, std::string, std::less<>> all = extra.labels;
  all.insert(of_process.labels.begin(), of_process.labels.end());
  of_process.labels.assign(all.begin(), all.end());
  return of_process;
}

select::OpSettings settings_for(const Snapshot& snapshot, const registry::OpRecord& op_record) {
  select::OpSettings d = settings_for(*snapshot.policy, op_record);
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
  p.constraints = {o->force, o->deny};
  return p;
}

Status check_override(const PolicyOverride& extra, const policy::Modes& modes) {
  if (extra.mode.empty()) return {};
  Status s = policy::check_mode_name(extra.mode, &modes);
  if (!s.ok()) s.note(fmt::format("set by the {}", extra.mode_by));
  return s;
}

}  // namespace yard::dispatch
