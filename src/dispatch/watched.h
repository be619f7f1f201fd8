// SPDX-License-Identifier: Apache-2.0
// Running a plan with all that may look at it: probes of half-open kernels before, health after. Hits of
// direct plans do without.
#pragma once

#include "dispatch/core.h"
#include "exec/executor.h"

namespace yard::detail {

// Runs a plan. Inside the guard.
Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome);
inline Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                          const exec::Plan& plan, const exec::Request& request) {
  exec::Outcome nobody_asks;
  return run_watched(thread, core, entry, plan, request, nobody_asks);
}
// The same, timed for rules in rollout and those beside them.
Status run_tallied(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, const exec::Request& request,
                   const policy::Rollout& rollout, bool in_rollout);
// For a call that found no kernel under the rules in rollout.
void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why);
// Whether a call uses the rules in rollout.
bool takes_rollout(const policy::Rollout& rollout, const Entry& entry, const Options* options,
                   const ScopeState* scope);

// Hands to health what became of a call. A plan whose kernel has failed is not direct until a call of each kind
// that failed has gone well: so every success that ends a row of faults is seen, and others cost nothing.
void note_outcome(const Core& core, const Entry& entry, const exec::Plan& plan,
                  const exec::Request& request, const exec::Outcome& outcome);

}  // namespace yard::detail
