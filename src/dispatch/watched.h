// SPDX-License-Identifier: Apache-2.0
// Running a plan with all that may look at it: trial calls of half-open kernels before, health after. Hits of
// direct plans do without.
#pragma once

#include "dispatch/core.h"
#include "exec/executor.h"

namespace yard::detail {

// Runs a plan. Inside the guard.
Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request);

// Hands to health what became of a call. A plan whose kernel has failed is not direct until a call has gone
// well: so every success that follows a failure is seen, and others cost nothing.
void note_outcome(const Core& core, const Entry& entry, const exec::Plan& plan,
                  const exec::Request& request, const exec::Outcome& outcome);

}  // namespace yard::detail
