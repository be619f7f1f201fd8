// SPDX-License-Identifier: Apache-2.0
// Overlays: entries for calls whose scope or options change the choice. How such an entry is found, what it is made
// from, and the settings of an op that it or the global entry has.
#pragma once

#include <yard/options.h>

#include <cstdint>
#include <map>
#include <string>

#include "policy/process.h"
#include "select/candidate_set.h"

namespace yard::detail {
struct ScopeState;
}

// Private to this folder and those that include it; what public headers name is in yard::detail.
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

// The hash of a scope without options.
inline uint64_t scope_hash(uint64_t id) noexcept { return id * 0x9e3779b97f4a7c15ull; }

// What scope and call add to the policy of the process: what an overlay is made for.
struct PolicyOverride {
  Policy policy;                  // of both
  std::string force;              // a kernel; empty: none
  std::vector<std::string> deny;  // kernels, beside those of the policy
  std::string mode;               // by name; empty: unset
  const char* mode_by = nullptr;  // "call" or "scope"
  std::map<std::string, std::string, std::less<>> labels;
  OverlayKey key;  // borrows the options it was made from
};
// `options` and `scope` may be null.
PolicyOverride make_override(const Options* options, const ScopeState* scope,
                             const OverlayKey& key);
// Whether the mode that an override names exists.
Status check_override(const PolicyOverride& extra, const policy::Modes& modes);

// The sources of an op's clauses under an override. `modes` are those that the program has added.
policy::ClauseSources with_override(policy::ClauseSources sources, const policy::Modes& modes,
                                    const PolicyOverride& extra);
// The settings of an op by the policy of the process; the same with health; and under an override.
select::OpSettings settings_for(const policy::ProcessPolicy& policy);
select::OpSettings settings_for(const Snapshot& snapshot, const registry::OpRecord& op_record);
select::OpSettings settings_for(select::OpSettings of_process, const PolicyOverride& extra);

}  // namespace yard::dispatch
