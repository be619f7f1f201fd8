// SPDX-License-Identifier: Apache-2.0
#include "live/answers.h"

#include <algorithm>
#include <chrono>

namespace yard::tool {
namespace {

LatencyHistogram read_latency(const Json& j) {
  LatencyHistogram to;
  to.count = count_at(j, "count"), to.sum_ns = count_at(j, "sum_ns");
  for (const Json& b : list_at(j, "buckets"))
    to.buckets.push_back({count_at(b, "up_to_ns"), count_at(b, "count")});
  std::ranges::sort(to.buckets, {}, &LatencyHistogram::Bucket::up_to_ns);
  return to;
}

CallStats read_call(const Json& j) {
  CallStats to;
  to.op = text_at(j, "op"), to.kernel = text_at(j, "kernel"), to.mode = text_at(j, "mode");
  to.call = text_at(j, "call");
  to.calls = count_at(j, "calls"), to.fallbacks = count_at(j, "fallbacks");
  for (size_t i = 0; i < to.failures.by_class.size(); ++i)
    to.failures.by_class[i] =
        count_at(value_at(j, "failures"), to_string(static_cast<ErrorClass>(i)));
  to.latency = read_latency(value_at(j, "latency"));
  return to;
}

}  // namespace

RuntimeStats read_stats(const Json& j) {
  RuntimeStats to;
  to.generation = count_at(j, "generation"), to.selections = count_at(j, "selections");
  to.plans = count_at(j, "plans");
  to.overlays = count_at(j, "overlays"), to.retired = count_at(j, "retired");
  to.states = count_at(j, "states"), to.state_bytes = count_at(j, "state_bytes");
  to.since += std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(std::clamp(number_at(j, "since"), 0.0, 4e9)));
  to.sampled_one_in = static_cast<uint32_t>(count_at(j, "sampled_one_in"));
  for (const Json& c : list_at(j, "calls")) to.calls.push_back(read_call(c));
  for (const Json& o : list_at(j, "ops"))
    to.ops.push_back(
        {text_at(o, "op"), count_at(o, "calls"), count_at(o, "hits"), count_at(o, "misses")});
  const Json& r = value_at(j, "reloads");
  to.reloads.applied = count_at(r, "applied"), to.reloads.refused = count_at(r, "refused");
  to.reloads.aborted = count_at(r, "aborted");
  to.reloads.last_ns = count_at(r, "last_ns"), to.reloads.total_ns = count_at(r, "total_ns");
  to.reloads.last_error = text_at(r, "last_error");
  return to;
}

}  // namespace yard::tool
