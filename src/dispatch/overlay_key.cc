// SPDX-License-Identifier: Apache-2.0
#include "dispatch/overlay_key.h"

#include <functional>
#include <string_view>

namespace yard::dispatch {
namespace {

void mix(uint64_t& h, uint64_t word) noexcept {
  h = (h ^ word) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
}
void mix(uint64_t& h, std::string_view text) noexcept {
  mix(h, std::hash<std::string_view>()(text));
}

// Policies that differ in what is left out here are told apart by comparing.
void mix(uint64_t& h, const Policy& p) noexcept {
  mix(h, static_cast<uint64_t>(p.prefer ? static_cast<int>(*p.prefer) : -1));
  mix(h, static_cast<uint64_t>(p.strict ? *p.strict + 1 : 0) * 4 +
             static_cast<uint64_t>(p.reference_only ? *p.reference_only + 1 : 0));
  for (const std::string& s : p.deny_kernels) mix(h, s);
  for (const std::string& s : p.deny_vendors) mix(h, s);
  for (const auto& [op, kernel] : p.locks) mix(h, kernel);
  for (const auto& [op, order] : p.per_op)
    for (const std::string& token : order) mix(h, token);
}

}  // namespace

OverlayKey OverlayKey::make(uint64_t scope, const Options* o, bool labelled, bool rollout) {
  OverlayKey key;
  key.scope = scope;
  key.rollout = rollout;
  key.labelled = labelled && o != nullptr && !o->labels.empty();
  if (o != nullptr && (o->policy || !o->force.empty() || !o->deny.empty() || o->mode ||
                       !o->mode_name.empty() || key.labelled))
    key.options = o;
  key.hash = scope_hash(scope);
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

}  // namespace yard::dispatch
