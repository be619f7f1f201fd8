// SPDX-License-Identifier: Apache-2.0
// Histograms, and statistics as JSON.
#include <fmt/format.h>
#include <yard/stats.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

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

using base::json_string;

std::string json(const LatencyHistogram& h) {
  std::string to = fmt::format(R"({{"count": {}, "sum_ns": {}, "buckets": [)", h.count, h.sum_ns);
  for (size_t i = 0; i < h.buckets.size(); ++i)
    fmt::format_to(std::back_inserter(to), R"({}{{"up_to_ns": {}, "count": {}}})",
                   i == 0 ? "" : ", ", h.buckets[i].up_to_ns, h.buckets[i].count);
  return to + "]}";
}

std::string json(const CallStats& c) {
  std::string failures;
  for (int i = YARD_CALLER; i <= YARD_FATAL; ++i) {
    const auto error = static_cast<ErrorClass>(i);
    failures += fmt::format(R"({}"{}": {})", failures.empty() ? "" : ", ", to_string(error),
                            c.failures.of(error));
  }
  return fmt::format(
      R"({{"op": {}, "kernel": {}, "mode": {}, "call": {}, "calls": {}, "fallbacks": {}, )"
      R"("failures": {{{}}}, )"
      R"("latency": {}}})",
      json_string(c.op), json_string(c.kernel), json_string(c.mode), json_string(c.call), c.calls,
      c.fallbacks, failures, json(c.latency));
}

std::string json(const OpStats& o) {
  return fmt::format(R"({{"op": {}, "calls": {}, "hits": {}, "misses": {}}})", json_string(o.op),
                     o.calls, o.hits, o.misses);
}

template <class T>
std::string list(const std::vector<T>& all) {
  std::string to = "[";
  for (const T& t : all) to += (to.size() == 1 ? "" : ", ") + json(t);
  return to + "]";
}

}  // namespace

std::string to_json(const RuntimeStats& s) {
  const double since = std::chrono::duration<double>(s.since.time_since_epoch()).count();
  const ReloadStats& r = s.reloads;
  return fmt::format(
      R"({{"generation": {}, "selections": {}, "replans": {}, "plans": {}, "overlays": {}, "retired": {}, )"
      R"("states": {}, "state_bytes": {}, )"
      R"("since": {:.3f}, "sampled_one_in": {}, "calls": {}, "ops": {}, )"
      R"("reloads": {{"applied": {}, "refused": {}, "rolled_back": {}, "last_ns": {}, "total_ns": {}, "last_error": {}}}}})",
      s.generation, s.selections, s.replans, s.plans, s.overlays, s.retired, s.states,
      s.state_bytes, since, s.sampled_one_in, list(s.calls), list(s.ops), r.applied, r.refused,
      r.rolled_back, r.last_ns, r.total_ns, json_string(r.last_error));
}

}  // namespace yard
