// SPDX-License-Identifier: Apache-2.0
#include "top/model.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <tuple>

namespace yard::tool {
namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

uint64_t difference(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

LatencyHistogram difference(const LatencyHistogram& before, const LatencyHistogram& now) {
  if (now.count < before.count) return now;
  std::map<uint64_t, uint64_t> old;
  for (const auto& b : before.buckets) old[b.up_to_ns] = b.count;
  LatencyHistogram to;
  to.count = now.count - before.count, to.sum_ns = difference(before.sum_ns, now.sum_ns);
  for (const auto& b : now.buckets)
    if (const uint64_t more = difference(old[b.up_to_ns], b.count); more > 0)
      to.buckets.push_back({b.up_to_ns, more});
  return to;
}

// The last bucket has no upper bound, so the bound of the bucket before it is used.
double quantile(const LatencyHistogram& h, double q) {
  uint64_t ns = h.quantile_ns(q);
  if (ns == kUnbounded) ns = h.buckets.size() > 1 ? h.buckets[h.buckets.size() - 2].up_to_ns : 0;
  return static_cast<double>(ns);
}

// Counts of a kernel or a class, in the interval and since the process started to count.
struct Tally {
  uint64_t calls = 0, failures = 0, fallbacks = 0, total = 0;
  LatencyHistogram latency, all;
  double time_ns = 0;

  void add_class(const CallStats& old, const CallStats& now) {
    const uint64_t more = difference(old.calls, now.calls);
    calls += more, total += now.calls;
    failures += difference(old.failures.total(), now.failures.total());
    fallbacks += difference(old.fallbacks, now.fallbacks);
    const LatencyHistogram recent = difference(old.latency, now.latency);
    // Each class has its own mean, because classes differ in size.
    const LatencyHistogram& best = recent.count > 0 ? recent : now.latency;
    time_ns += best.mean_ns() * static_cast<double>(more);
    latency.add(recent), all.add(now.latency);
  }

  TopRow row(double seconds, double all_time_ns) const {
    TopRow to;
    const auto rate = [seconds](uint64_t n) {
      return seconds > 0 ? static_cast<double>(n) / seconds : 0;
    };
    to.calls = total;
    to.calls_per_s = rate(calls), to.failures_per_s = rate(failures);
    to.fallbacks_per_s = rate(fallbacks);
    const LatencyHistogram& best = latency.count > 0 ? latency : all;
    to.mean_ns = best.mean_ns();
    to.p50_ns = quantile(best, 0.5), to.p99_ns = quantile(best, 0.99);
    to.share = all_time_ns > 0 ? time_ns / all_time_ns : 0;
    if (failures > 0) to.health = TopHealth::kFailing;
    return to;
  }
};

// A breaker with a key concerns only some classes of the kernel, and it is unknown here which.
TopHealth health_of(const std::vector<TopBreaker>& breakers, const TopRow& row) {
  TopHealth worst = row.health;
  for (const TopBreaker& b : breakers)
    if (b.op == row.op && b.kernel == row.kernel && (row.call.empty() || b.key.empty()))
      worst = std::max(worst, b.state == "half_open" ? TopHealth::kHalfOpen : TopHealth::kOpen);
  return worst;
}

bool has_text(const std::string& in, const std::string& text) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(in.begin(), in.end(), text.begin(), text.end(), same) != in.end();
}

bool comes_first(const TopRow& a, const TopRow& b, TopSort sort) {
  switch (sort) {
    case TopSort::kShare: return a.share > b.share;
    case TopSort::kCalls: return a.calls_per_s > b.calls_per_s;
    case TopSort::kLatency: return a.p99_ns > b.p99_ns;
    case TopSort::kHealth:
      return std::tuple(a.health, a.failures_per_s) > std::tuple(b.health, b.failures_per_s);
    case TopSort::kOp: return a.op < b.op;
    case TopSort::kKernel: return a.kernel < b.kernel;
  }
  return false;
}

Json row_json(const TopRow& r) {
  Json j = {{"op", r.op}, {"kernel", r.kernel}};
  if (!r.call.empty()) j["mode"] = r.mode, j["call"] = r.call;
  const bool timed = r.mean_ns > 0;
  j.update({{"calls", r.calls},
            {"calls_per_s", r.calls_per_s},
            {"failures_per_s", r.failures_per_s},
            {"fallbacks_per_s", r.fallbacks_per_s},
            {"mean_ns", timed ? Json(r.mean_ns) : Json()},
            {"p50_ns", timed ? Json(r.p50_ns) : Json()},
            {"p99_ns", timed ? Json(r.p99_ns) : Json()},
            {"share", r.share},
            {"health", to_string(r.health)}});
  return j;
}

}  // namespace

TopSample read_sample(const Json& stats, const Json& health, double at_s, double now_s) {
  TopSample to;
  to.at_s = at_s;
  to.stats = read_stats(stats);
  to.counted_s = std::max(0.0, now_s - number_at(stats, "since"));
  for (const Json& b : list_at(health, "breakers"))
    to.breakers.push_back({text_at(b, "op"), text_at(b, "kernel"), text_at(b, "key"),
                           text_at(b, "state"), text_at(b, "reason"), number_at(b, "until_s")});
  return to;
}

const char* to_string(TopHealth health) {
  switch (health) {
    case TopHealth::kHealthy: return "ok";
    case TopHealth::kFailing: return "failing";
    case TopHealth::kHalfOpen: return "half-open";
    case TopHealth::kOpen: return "open";
  }
  return "";
}

const char* to_string(TopSort sort) {
  switch (sort) {
    case TopSort::kShare: return "share";
    case TopSort::kCalls: return "calls";
    case TopSort::kLatency: return "latency";
    case TopSort::kHealth: return "health";
    case TopSort::kOp: return "op";
    case TopSort::kKernel: return "kernel";
  }
  return "";
}

TopModel compare(const TopSample* before, const TopSample& now) {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  const auto key = [](const CallStats& c) { return Key(c.op, c.kernel, c.mode, c.call); };
  std::map<Key, CallStats> old;
  std::map<std::string, OpStats> old_ops;
  if (before != nullptr) {
    for (const CallStats& c : before->stats.calls) old[key(c)] = c;
    for (const OpStats& o : before->stats.ops) old_ops[o.op] = o;
  }

  std::map<Key, Tally> by_class, by_kernel;
  double time_ns = 0;
  uint64_t calls = 0;
  for (const CallStats& c : now.stats.calls) {
    Tally& one = by_class[key(c)];
    one.add_class(old[key(c)], c);
    by_kernel[Key(c.op, c.kernel, "", "")].add_class(old[key(c)], c);
    time_ns += one.time_ns, calls += one.calls;
  }

  TopModel to;
  to.interval_s = before != nullptr ? now.at_s - before->at_s : now.counted_s;
  to.calls_per_s = to.interval_s > 0 ? static_cast<double>(calls) / to.interval_s : 0;
  to.generation = now.stats.generation, to.sampled_one_in = now.stats.sampled_one_in;
  to.breakers = now.breakers, to.reloads = now.stats.reloads;
  const auto rows_of = [&](const std::map<Key, Tally>& tallies, std::vector<TopRow>& rows) {
    for (const auto& [k, tally] : tallies) {
      TopRow& row = rows.emplace_back(tally.row(to.interval_s, time_ns));
      std::tie(row.op, row.kernel, row.mode, row.call) = k;
      row.health = health_of(now.breakers, row);
    }
  };
  rows_of(by_kernel, to.rows), rows_of(by_class, to.classes);

  to.slower = slower_kernels(before != nullptr ? before->stats : RuntimeStats(), now.stats);
  uint64_t hits = 0, misses = 0;
  for (const OpStats& o : now.stats.ops) {
    const OpStats& was = old_ops[o.op];
    hits += difference(was.hits, o.hits), misses += difference(was.misses, o.misses);
  }
  if (hits + misses > 0)
    to.hit_rate = static_cast<double>(hits) / static_cast<double>(hits + misses);
  return to;
}

std::vector<TopRow> chosen_rows(const std::vector<TopRow>& rows, const std::string& filter,
                                TopSort sort, bool reverse) {
  std::vector<TopRow> to;
  for (const TopRow& r : rows)
    if (has_text(r.op, filter) || has_text(r.kernel, filter) || has_text(r.call, filter))
      to.push_back(r);
  std::ranges::stable_sort(to, [&](const TopRow& a, const TopRow& b) {
    return reverse ? comes_first(b, a, sort) : comes_first(a, b, sort);
  });
  return to;
}

Json to_json(const TopModel& m) {
  Json rows = Json::array(), classes = Json::array(), breakers = Json::array(),
       slower = Json::array();
  for (const SlowerKernel& k : m.slower)
    slower.push_back({{"op", k.op},
                      {"call", k.call},
                      {"kernel", k.kernel},
                      {"mean_ns", k.ns},
                      {"faster", k.faster},
                      {"faster_mean_ns", k.faster_ns}});
  for (const TopRow& r : m.rows) rows.push_back(row_json(r));
  for (const TopRow& r : m.classes) classes.push_back(row_json(r));
  for (const TopBreaker& b : m.breakers)
    breakers.push_back({{"op", b.op},
                        {"kernel", b.kernel},
                        {"key", text_or_null(b.key)},
                        {"state", b.state},
                        {"reason", text_or_null(b.reason)},
                        {"until_s", b.until_s > 0 ? Json(b.until_s) : Json()}});
  return {{"interval_s", m.interval_s},
          {"generation", m.generation},
          {"sampled_one_in", m.sampled_one_in},
          {"calls_per_s", m.calls_per_s},
          {"hit_rate", m.hit_rate},
          {"kernels", std::move(rows)},
          {"classes", std::move(classes)},
          {"breakers", std::move(breakers)},
          {"slower", std::move(slower)},
          {"reloads",
           {{"applied", m.reloads.applied},
            {"refused", m.reloads.refused},
            {"aborted", m.reloads.aborted},
            {"last_ns", m.reloads.last_ns},
            {"last_error", text_or_null(m.reloads.last_error)}}}};
}

}  // namespace yard::tool
