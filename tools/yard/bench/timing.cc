// SPDX-License-Identifier: Apache-2.0
#include "bench/timing.h"

#include <algorithm>

namespace yard::tool {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double ns_per_call(const Loop& loop, int64_t n) {
  const auto start = Clock::now();
  loop(n);
  return seconds_since(start) * 1e9 / static_cast<double>(n);
}

double least(const Path& p) {
  double best = ns_per_call(p.loop, p.batch);
  for (int i = 1; i < kBatches; ++i) best = std::min(best, ns_per_call(p.loop, p.batch));
  return best;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v.empty() ? 0 : v[v.size() / 2];
}

std::vector<double> in_turn(const std::vector<Path>& paths, double seconds) {
  std::vector<std::vector<double>> rounds(paths.size());
  for (const Path& p : paths) p.loop(p.batch);  // warms up
  const auto start = Clock::now();
  for (int round = 0; round < 5 || seconds_since(start) < seconds; ++round)
    for (size_t i = 0; i < paths.size(); ++i) rounds[i].push_back(least(paths[i]));
  std::vector<double> out;
  for (auto& r : rounds) out.push_back(median(std::move(r)));
  return out;
}

}  // namespace yard::tool
