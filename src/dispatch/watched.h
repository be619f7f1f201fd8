// SPDX-License-Identifier: Apache-2.0
// Running a plan under observation: the call observer and probes of half-open kernels before, health after, times of
// rules in rollout around it. Hits of direct plans do without.
#pragma once

#include "dispatch/core.h"
#include "dispatch/scope.h"
#include "exec/executor.h"

namespace yard::detail {

// Runs a plan. Inside the guard.
Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome);
inline Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                          const exec::Plan& plan, const exec::Request& request) {
  exec::Outcome ignored;
  return run_watched(thread, core, entry, plan, request, ignored);
}

// Reports the outcome of a call to health. A plan whose kernel has failed is not direct until a call of each kind that
// failed has succeeded: so every success that ends a row of faults is seen, and others cost nothing.
void note_outcome(const Core& core, const Entry& entry, const exec::Request& request,
                  const exec::Outcome& outcome);

// Reports a call that is about to run to the entry's observer, which must exist. `o` may be null.
void observe(const Entry& e, const yard_value_t* args, uint32_t flags, const Options* o) noexcept;

// ---- Rollouts ----
// Whether a call takes the rules in rollout.
bool takes_rollout(const policy::Rollout& rollout, const Entry& entry, const Options* options,
                   const ScopeState* scope);
// run_watched(), timed for the comparison of the rules in rollout with those in force.
Status run_tallied(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, const exec::Request& request,
                   const policy::Rollout& rollout, bool in_rollout);
// For a call that found no kernel under the rules in rollout.
void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why);

}  // namespace yard::detail
