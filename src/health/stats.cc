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
  std::vector<Bucket> both;
  auto a = buckets.begin();
  auto b = other.buckets.begin();
  while (a != buckets.end() || b != other.buckets.end()) {
    if (b == other.buckets.end() || (a != buckets.end() && a->up_to_ns < b->up_to_ns)) {
      both.push_back(*a++);
    } else if (a == buckets.end() || b->up_to_ns < a->up_to_ns) {
      both.push_back(*b++);
    } else {
      both.push_back({a->up_to_ns, a->count + b->count});
      ++a, ++b;
    }
  }
  buckets = std::move(both);
}

namespace {

using base::JsonObject;

std::string json(const LatencyHistogram::Bucket& b) {
  JsonObject to;
  to.add("up_to_ns", b.up_to_ns).add("count", b.count);
  return to.text();
}

std::string json(const OpStats& o) {
  JsonObject to;
  to.add("op", o.op).add("calls", o.calls).add("hits", o.hits).add("misses", o.misses);
  return to.text();
}

std::string json(const CallStats& c);

template <class T>
std::string list(const std::vector<T>& all) {
  std::vector<std::string> values;
  for (const T& t : all) values.push_back(json(t));
  return base::json_list(values);
}

std::string json(const CallStats& c) {
  JsonObject failures, latency, to;
  for (int i = YARD_CALLER; i <= YARD_FATAL; ++i)
    failures.add(to_string(static_cast<ErrorClass>(i)), c.failures.of(static_cast<ErrorClass>(i)));
  latency.add("count", c.latency.count).add("sum_ns", c.latency.sum_ns);
  latency.add_json("buckets", list(c.latency.buckets));
  to.add("op", c.op).add("kernel", c.kernel).add("mode", c.mode).add("call", c.call);
  to.add("calls", c.calls).add("fallbacks", c.fallbacks);
  to.add_json("failures", failures.text());
  to.add_json("latency", latency.text());
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
  to.add_json("calls", list(s.calls)).add_json("ops", list(s.ops));
  to.add_json("reloads", reloads.text());
  return to.text();
}

}  // namespace yard
