// SPDX-License-Identifier: Apache-2.0
// Changes for the whole process: policy, environment, rule file, rollouts, labels, modes. Each
// publishes one snapshot, or fails and publishes nothing. Do not call these inside selections.
#pragma once

#include "dispatch/core.h"

namespace yard::dispatch {

Status set_policy(Core& core, Policy policy);
Status set_labels(Core& core, op::Labels labels);
// Sets the breaker settings that hold where the rule file has none.
Status set_breakers(Core& core, const BreakerSettings& settings);
Status set_static_map(Core& core, StaticMap map);
Status add_mode(Core& core, std::shared_ptr<const policy::ProgramMode> mode);
// Fails while the rule file in force names the mode. Scopes and calls that name it later fail.
Status remove_mode(Core& core, std::string_view name);
template <class T>
std::shared_ptr<T> find_observer(const Core& core) {
  const auto all = core.snapshot()->observers;
  if (all != nullptr)
    for (const auto& o : *all)
      if (auto found = std::dynamic_pointer_cast<T>(o)) return found;
  return nullptr;
}

Status set_environment(Core& core, std::shared_ptr<const policy::Reading> reading);
// Reads the switches of newly registered backends from the environment, and drops switches of
// removed backends. Logs invalid values.
void read_own_switches(const registry::State& state, policy::ProcessPolicy& policy);

// Returns whether a change still applies to the policy in force. If not, nothing is published.
using StillApplies = std::function<bool(const policy::ProcessPolicy&)>;
// Puts rules in force, or removes them if `file` is null, and ends a rollout. Returns `version`
// with its number, or null if `still` refused the change or there were no rules to remove.
using PublishedRules = std::shared_ptr<const policy::RulesVersion>;
Result<PublishedRules> set_file(Core& core, const std::shared_ptr<const policy::FileRules>& file,
                                const policy::RulesVersion& version, const StillApplies& still);
// Applies rules to a share of the calls. Returns false if `still` refused the change.
Result<bool> begin_rollout(Core& core, const std::shared_ptr<const policy::FileRules>& file,
                           const StillApplies& still);
// Returns false if these rules are not in rollout.
Result<bool> end_rollout(Core& core, const policy::FileRules* rules);
bool is_in_rollout(const policy::ProcessPolicy& policy, const policy::FileRules* rules);

// A call to which other rules would give another kernel, or none.
struct MovedCall {
  std::string op, call;        // `call` is a CallSpec
  std::string from, to;        // ids of kernels; `to` is empty if the call would have none
  Kind kind = Kind::kDefault;  // of `to`
  std::string why;             // why `from` would not serve the call, if `to` is empty
};
enum class Moved : uint8_t {
  kUnserved,  // a few calls of each op that would have no kernel, even if all breakers were closed
  kAll        // all calls that would have another kernel or none
};
// Tries rules on the known calls of all entries. Runs plugin code and publishes nothing.
std::vector<MovedCall> moved_under(const Core& core,
                                   const std::shared_ptr<const policy::FileRules>& file,
                                   Moved which);

}  // namespace yard::dispatch
