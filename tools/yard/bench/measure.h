// SPDX-License-Identifier: Apache-2.0
// Measures for `yard bench dispatch` and bench/dispatch_bench: every way to call an op, the effect
// of kernels of other ops, and how calls scale with threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/paths.h"

namespace yard::tool {

struct DispatchFigures {
  struct Row {
    const char* key;
    const char* meaning;
    double ns;
  };
  std::vector<Row> rows;   // BenchCall::paths() in the same order, raw first
  std::vector<Row> other;  // another dispatcher, if one was given
  double with_1000_kernels_ns = 0, without_1000_kernels_ns = 0;  // the dynamic call
  int threads = 0;
  // Throughput of `threads` threads relative to one thread.
  double raw_speedup = 0, dynamic_speedup = 0, other_speedup = 0;
};

// Returns the ways to call another dispatcher, with new arguments each time, so that every thread
// has its own. The scaling with threads is measured with the first path.
using OtherPaths = std::function<std::vector<Path>()>;

int default_threads();

// Measures for about `seconds`. `threads` must be at least two. Registers the ops of BenchCall.
DispatchFigures measure_dispatch(double seconds, int threads, const OtherPaths& other = {});

// Formats the members of a JSON object, one on each line, without `other`.
std::string json_members(const DispatchFigures& f);

}  // namespace yard::tool
