// SPDX-License-Identifier: Apache-2.0
// Overlays: entries for calls whose scope or options change the choice. How such an entry is found, what it is made
// from, and the settings of an op that it or the global entry has.
#pragma once

#include <yard/options.h>

#include <map>

#include "policy/process.h"
#include "select/candidate_set.h"

namespace yard::detail {
struct ScopeState;
}

namespace yard::dispatch {

using namespace detail;

class Snapshot;

// Which entry of an op a call needs. Borrows the options; comparing allocates nothing.
struct OverlayKey {
  uint64_t scope = 0;                // number of the scope's policy; 0: none
  const Options* options = nullptr;  // null: no option changes the choice
  bool labelled = false;             // the labels of the options count
  bool rollout = false;              // by the rules in rollout
  uint64_t hash = 0;                 // 0: the global entry

  // `labelled`: with the call's own labels, which only some rules read. `options` and `scope` may be null.
  static OverlayKey make(const Options* options, const ScopeState* scope, bool labelled,
                         bool rollout = false);
  bool operator==(const OverlayKey& o) const noexcept;
};

// What scope and call add to the policy of the process.
struct PolicyOverride {
  Policy policy;                  // of both
  std::string force;              // a kernel; empty: none
  std::vector<std::string> deny;  // kernels, beside those of the policy
  std::string mode;               // by name; empty: unset
  const char* mode_by = nullptr;  // "call" or "scope"
  std::map<std::string, std::string, std::less<>> labels;
};
// `options` and `scope` may be null. An error if the mode that they name is not among `modes`, which the program has added.
Result<PolicyOverride> make_override(const Options* options, const ScopeState* scope,
                                     const OverlayKey& key, const policy::Modes& modes);

// The labels of `over`, and those of `under` that have other names.
template <class Over, class Under>
op::Labels labels_over(const Over& over, const Under& under) {
  std::map<std::string, std::string, std::less<>> all(over.begin(), over.end());
  all.insert(under.begin(), under.end());
  return {all.begin(), all.end()};
}

// The settings of an op by a policy, which is that of the snapshot or one beside it.
select::OpSettings settings_for(const Snapshot& snapshot, const policy::ProcessPolicy& policy,
                                const std::string& op);
// Adds an override to what a candidate set of an op is made from.
void apply_override(const PolicyOverride& extra, const policy::Modes& modes,
                    policy::ClauseSources& sources, select::OpSettings& settings);

}  // namespace yard::dispatch
