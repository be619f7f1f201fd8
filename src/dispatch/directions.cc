// SPDX-License-Identifier: Apache-2.0
// What mode, rule file and labels say about an op: to everybody, and to those a patch is for.
#include "dispatch/core.h"

namespace yard::detail {
namespace {

Mode parsed_mode(const std::string* name) {
  return name != nullptr ? parse_mode(*name).value_or(Mode::kAuto) : Mode::kAuto;
}

}  // namespace

select::Directions directions_for(const policy::ProcessPolicy& policy,
                                  const registry::Family& family) {
  select::Directions d;
  d.labels = policy.labels;
  if (policy.file == nullptr) return d;
  const Config& config = policy.file->config;
  const std::string& op = family.op->name;
  d.mode = parsed_mode(policy::mode_of(config, op));
  d.file = policy.file;
  d.rules = policy.file->rules_for(family.op->program);
  if (const KernelRef* k = policy::find_for_op(config.static_kernel_map, op)) d.mapped = k->id;
  for (const KernelRef& k : policy::chain_of(config, op)) d.chain.push_back(k.id);
  d.cache = config.settings.cache.enabled.value_or(true);
  d.plans = static_cast<size_t>(config.settings.cache.size.value_or(0));
  if (const auto& n = config.settings.max_fallback_attempts) d.fallbacks = static_cast<size_t>(*n);
  return d;
}

select::Directions directions_for(select::Directions of_process, const Patch& patch) {
  if (patch.mode) of_process.mode = *patch.mode;
  if (patch.labels.empty()) return of_process;
  std::map<std::string, std::string, std::less<>> all = patch.labels;
  all.insert(of_process.labels.begin(), of_process.labels.end());
  of_process.labels.assign(all.begin(), all.end());
  return of_process;
}

}  // namespace yard::detail
