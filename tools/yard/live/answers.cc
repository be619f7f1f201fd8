// SPDX-License-Identifier: Apache-2.0
#include "live/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "terminal.h"

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

std::string factor_text(double factor) {
  return factor < 10 ? fmt::format("{:.2g}", factor) : fmt::format("{:.0f}", factor);
}

std::string SlowerKernel::text() const {
  return fmt::format("{} takes {} where {} takes {} ({} times as long): {}", kernel, duration(ns),
                     faster, duration(faster_ns), factor_text(ns / faster_ns), call);
}

std::vector<SlowerKernel> slower_kernels(const RuntimeStats& before, const RuntimeStats& now) {
  constexpr double kMuch = 2;
  constexpr uint64_t kSamples = 3;  // fewer samples say little
  struct Served {
    LatencyHistogram latency;
    uint64_t calls = 0;
  };
  using Class = std::pair<std::string, std::string>;
  std::map<Class, std::map<std::string, Served>> all;  // by op and call, then by kernel
  for (const CallStats& c : now.calls) {
    if (c.call == "other") continue;
    Served& s = all[{c.op, c.call}][c.kernel];
    s.latency.add(c.latency), s.calls += c.calls;
  }
  // A kernel whose counters were reset in between counts as unused.
  for (const CallStats& c : before.calls)
    if (const auto at = all.find({c.op, c.call}); at != all.end())
      if (const auto s = at->second.find(c.kernel); s != at->second.end())
        s->second.calls -= std::min(s->second.calls, c.calls);
  std::vector<SlowerKernel> to;
  for (const auto& [of, kernels] : all) {
    const std::pair<const std::string, Served>* best = nullptr;
    for (const auto& k : kernels)
      if (k.second.latency.count >= kSamples &&
          (best == nullptr || k.second.latency.mean_ns() < best->second.latency.mean_ns()))
        best = &k;
    for (const auto& [id, s] : kernels)
      if (best != nullptr && s.calls > 0 && s.latency.count >= kSamples &&
          s.latency.mean_ns() >= kMuch * best->second.latency.mean_ns() && id != best->first)
        to.push_back({of.first, of.second, id, best->first, s.latency.mean_ns(),
                      best->second.latency.mean_ns(), s.calls});
  }
  std::ranges::stable_sort(to, std::ranges::greater(), &SlowerKernel::lost_ns);
  return to;
}

}  // namespace yard::tool
