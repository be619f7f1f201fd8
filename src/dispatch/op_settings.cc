// SPDX-License-Identifier: Apache-2.0
// What mode, rule file and labels say about an op: to everybody, and to those a policy override is for.
#include <fmt/format.h>

#include "dispatch/overlay.h"

namespace yard::detail {
namespace {

// A name that has been checked.
void set_mode(select::OpSettings& d, const std::string& name, const char* by) {
  d.mode_by = by;
  d.program = nullptr;
  if (const auto mode = parse_mode(name)) {
    d.mode = *mode;
  } else if (const auto it = d.modes->find(name); it != d.modes->end()) {
    d.mode = Mode::kProgram;
    d.program = it->second;
  }
}

// "static_kernel_map (rules.yaml:7)"
std::string placed(const Config& config, const std::string& what, const KernelRef& ref) {
  if (ref.at.line == 0 || ref.at.file >= config.sources.files.size()) return what + " of the rules";
  return fmt::format("{} ({}:{})", what, config.sources.files[ref.at.file], ref.at.line);
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
  d.modes = policy.modes;
  d.observer = policy.observer;
  d.rollout = policy.rollout;
  d.watched = policy.observer != nullptr || policy.rollout != nullptr;
  const std::string& op = op_record.op->name;
  const auto& mapped = policy.mapped.kernels();
  if (const auto it = mapped.find(op); it != mapped.end())
    d.mapped = it->second, d.mapped_by = "the program's static map";
  if (policy.file == nullptr) return d;
  const Config& config = policy.file->config;
  if (const std::string* mode = policy::mode_of(config, op)) set_mode(d, *mode, "file");
  d.file = policy.file;
  d.rules = policy.file->rules_for(op_record.op->program);
  const KernelRef* said = policy::find_for_op(config.static_kernel_map, op);
  if (said != nullptr && d.mapped.empty())
    d.mapped = said->id, d.mapped_by = placed(config, "static_kernel_map", *said);
  for (const KernelRef& k : policy::chain_of(config, op)) d.chain.push_back(k.id);
  if (!d.chain.empty()) d.chain_by = chain_text(config, op);
  d.cache = config.settings.cache.enabled.value_or(true);
  d.plans = static_cast<size_t>(config.settings.cache.size.value_or(0));
  d.lifetime = config.settings.cache.lifetime.value_or(std::chrono::nanoseconds(0));
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

}  // namespace yard::detail
