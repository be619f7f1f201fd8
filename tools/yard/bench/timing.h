// SPDX-License-Identifier: Apache-2.0
// Measures ways to call on a busy machine. The ways alternate, so that noise affects them equally.
// A round takes the minimum of a few short batches, and the result is the median of the rounds.
#pragma once

#include <chrono>
#include <vector>

#include "bench/paths.h"

namespace yard::tool {

using Clock = std::chrono::steady_clock;

inline constexpr int kBatches = 3;

double seconds_since(Clock::time_point start);
double ns_per_call(const Loop& loop, int64_t n);
// Returns the minimum of kBatches batches, in nanoseconds for each call.
double least(const Path& p);
double median(std::vector<double> v);
// Returns the median of each path, measured for `seconds` and for at least five rounds.
std::vector<double> in_turn(const std::vector<Path>& paths, double seconds);

}  // namespace yard::tool
