// SPDX-License-Identifier: Apache-2.0
// Canaries: sampled calls of kernels are looked at, as the rule file says. A call's inputs are copied before its
// kernel runs; afterwards another kernel runs on the copies, and the results are compared. Or only what comes out of
// finite numbers is looked at, which takes neither copies nor a second run.
//
// A call that is not looked at costs a count in memory of the thread. Only host memory can be looked at.
#pragma once

#include <yard/config.h>

#include <memory>
#include <optional>
#include <vector>

#include "registry/changes.h"
#include "registry/inspector.h"
#include "select/candidate_set.h"
#include "tune/canary_state.h"

namespace yard::tune {

// Calls whose tensors reach over more are not looked at.
inline constexpr double kMostCopyBytes = 1 << 30;

// What two results of an op may be apart: the op's own, after what was said of floats, if anything was.
std::vector<yard_tolerance_t> tolerances_of(const registry::Op& op, std::optional<double> rtol,
                                            std::optional<double> atol);

// What the rules say of one op. Null: nothing, or nothing that can be done, which the state is told.
std::shared_ptr<registry::Inspector> make_canary(
    const Config& config, const std::shared_ptr<const registry::OpRecord>& op_record,
    const select::ProcessState& where, const std::shared_ptr<CanaryState>& state);

}  // namespace yard::tune
