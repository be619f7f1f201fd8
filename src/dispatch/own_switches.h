// SPDX-License-Identifier: Apache-2.0
// The variables that backends chose for themselves as their switches.
#pragma once

#include "policy/process.h"
#include "registry/changes.h"

namespace yard::dispatch {

// Reads those of backends that have come, and forgets those of backends that are gone. One that means nothing is
// logged.
void read_own_switches(const registry::State& state, policy::ProcessPolicy& policy);
bool has_own_switches(const registry::State& state);

}  // namespace yard::dispatch
