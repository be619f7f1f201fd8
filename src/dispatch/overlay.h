// SPDX-License-Identifier: Apache-2.0
// Overlays are entries for calls whose scope or options change the choice.
#pragma once

#include "dispatch/scope.h"
#include "select/candidate_set.h"

namespace yard::detail {
class Core;
}  // namespace yard::detail

namespace yard::dispatch {

using namespace detail;

class Snapshot;

// Says which entry of an op a call needs. Borrows the options. Comparing keys allocates nothing.
struct OverlayKey {
  uint64_t scope = 0;                // the number of the scope's policy, or 0 outside of scopes
  const Options* options = nullptr;  // null if no option changes the choice
  bool labelled = false;             // the labels of the options count
  bool rollout = false;              // use the rules in rollout
  uint64_t hash = 0;                 // 0 for the global entry

  // `labelled` includes the call's own labels, which only some rules read. Pointers may be null.
  static OverlayKey make(const Options* options, const ScopeState* scope, bool labelled,
                         bool rollout = false);
  bool operator==(const OverlayKey& o) const noexcept;
};

// Merges labels. Labels of `over` replace labels of `under`.
template <class Over, class Under>
op::Labels labels_over(const Over& over, const Under& under) {
  std::map<std::string, std::string, std::less<>> all(over.begin(), over.end());
  all.insert(under.begin(), under.end());
  return {all.begin(), all.end()};
}

// Returns the parts under a policy, a scope and the options of `key`. Fails for an unknown mode.
Result<select::CandidateParts> parts_for(const Core& core, const Snapshot& snapshot,
                                         const policy::ProcessPolicy& policy, const std::string& op,
                                         const OverlayKey& key = {},
                                         const ScopeContent& scope = {});

}  // namespace yard::dispatch
