// SPDX-License-Identifier: Apache-2.0
// Measures ways to call on a busy machine, all in turn and round after round, so that noise affects
// them equally. The figure of a round is the minimum of a few short batches. The result is the
// median over the rounds.
#pragma once

#include <chrono>
#include <vector>

#include "bench/paths.h"

namespace yard::tool {

using Clock = std::chrono::steady_clock;

// The number of batches in a round.
inline constexpr int kBatches = 3;

double seconds_since(Clock::time_point start);
double ns_per_call(const Loop& loop, int64_t n);
// The minimum of kBatches.
double least(const Path& p);
double median(std::vector<double> v);
// The median of each path, measured in turn for `seconds` and at least five rounds.
std::vector<double> in_turn(const std::vector<Path>& paths, double seconds);

}  // namespace yard::tool
