// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, and their checks before a call runs.
#pragma once

#include <yard/plugin.hpp>

namespace yard::vendor_template {

// out = silu(first half of each row) * second half. Sees compact f32 that fits into the unit.
void silu_and_mul(plugin::Call call, plugin::Tensor out, plugin::Tensor x);

// Whether a call fits: reads `rows` and `d`, answers with the first of kFitsReasons.
int32_t fits(const yard_query_t* query, yard_verdict_t* verdict);
inline constexpr const char* kFitsReads[] = {"rows", "d", nullptr};
inline constexpr const char* kFitsReasons[] = {
    "{0} rows of {1} numbers are more than the {2} that fit into the unit"};

// Estimated nanoseconds from `rows` and `d`.
double silu_cost(void* self, const int64_t* fields, uint32_t count);
inline constexpr const char* kCostReads[] = {"rows", "d", nullptr};

}  // namespace yard::vendor_template
