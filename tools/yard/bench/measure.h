// SPDX-License-Identifier: Apache-2.0
// Everything that `yard bench dispatch` and bench/dispatch_bench measure: every way to call, the
// effect of kernels of other ops, and how calls scale with threads.
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
  std::vector<Row> rows;   // BenchCall::paths(), in their order, raw first
  std::vector<Row> other;  // of another dispatcher, if one was given
  double with_1000_kernels_ns = 0, without_1000_kernels_ns = 0;  // dynamic, in turn
  int threads = 0;
  // Calls that `threads` threads make together, over those of one thread in the same time.
  double raw_speedup = 0, dynamic_speedup = 0, other_speedup = 0;
};

// The calls of another dispatcher, with arguments of their own for each thread. The first call also
// runs on all threads.
using OtherPaths = std::function<std::vector<Path>()>;

// One thread for each processor, and at least two.
int default_threads();

// Measures for about `seconds`, with `threads` of at least two. Registers the ops of BenchCall.
DispatchFigures measure_dispatch(double seconds, int threads, const OtherPaths& other = {});

// The members of a JSON object, one on each line, without `other`.
std::string json_members(const DispatchFigures& f);

}  // namespace yard::tool
