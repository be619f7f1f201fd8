// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, and their checks before a call runs.
#pragma once

#include <yard/plugin.hpp>

namespace yard::vendor_template {

// Computes silu(first half of each row) * second half. Receives only compact f32 tensors that fit
// into the unit.
void silu_and_mul(plugin::Call call, plugin::Tensor out, plugin::Tensor x);

// Decides whether a call fits from `rows` and `d`. If not, the reason is the first of kFitsReasons.
int32_t fits(const yard_query_t* query, yard_verdict_t* verdict);
inline constexpr const char* kFitsReads[] = {"rows", "d", nullptr};
inline constexpr const char* kFitsReasons[] = {
    "{0} rows of {1} numbers are more than the {2} that fit into the unit"};

// Returns the estimated nanoseconds of a call with `rows` and `d`.
double silu_cost(void* self, const int64_t* fields, uint32_t count);
inline constexpr const char* kCostReads[] = {"rows", "d", nullptr};

}  // namespace yard::vendor_template
