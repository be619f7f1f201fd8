// SPDX-License-Identifier: Apache-2.0
// Histograms, and statistics as JSON.
#include <fmt/format.h>
#include <yard/stats.h>

#include <algorithm>

#include "base/json.h"

namespace yard {

double LatencyHistogram::mean_ns() const noexcept {
  return count == 0 ? 0 : static_cast<double>(sum_ns) / static_cast<double>(count);
}

uint64_t LatencyHistogram::quantile_ns(double q) const noexcept {
  const double wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(count);
  uint64_t seen = 0;
  for (const Bucket& b : buckets) {
    seen += b.count;
    if (static_cast<double>(seen) >= wanted) return b.up_to_ns;
  }
  return 0;
}

void LatencyHistogram::add(const LatencyHistogram& other) {
  count += other.count, sum_ns += other.sum_ns;
  for (const Bucket& b : other.buckets) {
    auto at = std::ranges::lower_bound(buckets, b.up_to_ns, {}, &Bucket::up_to_ns);
    if (at == buckets.end() || at->up_to_ns != b.up_to_ns) at = buckets.insert(at, {b.up_to_ns, 0});
    at->count += b.count;
  }
}

namespace {

using base::JsonObject;

// The texts that `json` makes of the elements, as a list.
template <class T, class F>
std::string list(const std::vector<T>& all, const F& json) {
  std::vector<std::string> values;
  for (const T& t : all) values.push_back(json(t));
  return base::json_list(values);
}

std::string json(const CallStats& c) {
  JsonObject failures, latency, to;
  for (int i = YARD_CALLER; i <= YARD_FATAL; ++i)
    failures.add(to_string(static_cast<ErrorClass>(i)), c.failures.of(static_cast<ErrorClass>(i)));
  latency.add("count", c.latency.count).add("sum_ns", c.latency.sum_ns);
  latency.add_json("buckets", list(c.latency.buckets, [](const LatencyHistogram::Bucket& b) {
                     return JsonObject().add("up_to_ns", b.up_to_ns).add("count", b.count).text();
                   }));
  to.add("op", c.op).add("kernel", c.kernel).add("mode", c.mode).add("call", c.call);
  to.add("calls", c.calls).add("fallbacks", c.fallbacks);
  to.add_json("failures", failures.text()).add_json("latency", latency.text());
  return to.text();
}

}  // namespace

std::string to_json(const RuntimeStats& s) {
  JsonObject reloads, to;
  reloads.add("applied", s.reloads.applied).add("refused", s.reloads.refused);
  reloads.add("aborted", s.reloads.aborted);
  reloads.add("last_ns", s.reloads.last_ns).add("total_ns", s.reloads.total_ns);
  reloads.add("last_error", s.reloads.last_error);
  to.add("generation", s.generation).add("selections", s.selections);
  to.add("plans", s.plans).add("overlays", s.overlays).add("retired", s.retired);
  to.add("states", s.states).add("state_bytes", s.state_bytes);
  const double since = std::chrono::duration<double>(s.since.time_since_epoch()).count();
  to.add_json("since", fmt::format("{:.3f}", since)).add("sampled_one_in", s.sampled_one_in);
  to.add_json("calls", list(s.calls, [](const CallStats& c) { return json(c); }));
  to.add_json("ops", list(s.ops, [](const OpStats& o) {
                JsonObject op;
                op.add("op", o.op).add("calls", o.calls).add("hits", o.hits);
                return op.add("misses", o.misses).text();
              }));
  to.add_json("reloads", reloads.text());
  return to.text();
}

}  // namespace yard
