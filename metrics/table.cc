// SPDX-License-Identifier: Apache-2.0
// The table of metrics: their names, types, help texts and labels, and how each is computed.
#include <yard/log.h>
#include <yard/metrics.h>
#include <yard/runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace yard {
namespace {

constexpr size_t kLongestLabel = 200;
constexpr const char* kOther = "other";

// Replaces bytes that cannot be printed by '?' and cuts long texts.
std::string label_value(std::string_view text) {
  std::string to;
  for (size_t at = 0; at < text.size() && to.size() < kLongestLabel;) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const std::string_view character = text.substr(at, length);
    const bool prints = printable(character) == character;
    to += prints ? character : "?";
    at += prints ? length : 1;
  }
  return to;
}

struct CallTotals {
  uint64_t calls = 0, fallbacks = 0;
  void add(const CallTotals& o) { calls += o.calls, fallbacks += o.fallbacks; }
};

// These powers of two are also bounds of LatencyHistogram, so that none of its buckets is divided.
constexpr size_t kBounds = 24;
constexpr uint64_t bound_ns(size_t i) { return uint64_t{256} << i; }

struct KernelTotals {
  HealthCounts::Failures failures;
  uint64_t count = 0, sum_ns = 0;
  std::array<uint64_t, kBounds> up_to{};
  int breaker = 0;  // shown as yard_breaker_state

  void add(const LatencyHistogram& h) {
    count += h.count, sum_ns += h.sum_ns;
    for (const LatencyHistogram::Bucket& b : h.buckets)
      for (size_t i = 0; i < kBounds; ++i)
        if (b.up_to_ns <= bound_ns(i)) up_to[i] += b.count;
  }
  void add(const HealthCounts::Failures& f) {
    for (size_t i = 0; i < f.by_class.size(); ++i) failures.by_class[i] += f.by_class[i];
  }
  void add(const KernelTotals& o) {
    add(o.failures);
    count += o.count, sum_ns += o.sum_ns;
    for (size_t i = 0; i < kBounds; ++i) up_to[i] += o.up_to[i];
    breaker = std::max(breaker, o.breaker);
  }
};

struct OpTotals {
  uint64_t hits = 0, misses = 0;
  void add(const OpTotals& o) { hits += o.hits, misses += o.misses; }
};

// Adds the entries beyond the limit up as one entry `other`.
template <size_t N, class T>
void limit(std::map<std::array<std::string, N>, T>& all, size_t most) {
  if (all.size() <= most) return;
  T rest{};
  const auto first = std::next(all.begin(), static_cast<ptrdiff_t>(most));
  for (auto at = first; at != all.end(); ++at) rest.add(at->second);
  all.erase(first, all.end());
  std::array<std::string, N> other;
  other.fill(kOther);
  all[other].add(rest);
}

struct Totals {
  const RuntimeStats& stats;
  std::map<std::array<std::string, 3>, CallTotals> calls;      // by op, kernel and mode
  std::map<std::array<std::string, 2>, KernelTotals> kernels;  // by op and kernel
  std::map<std::array<std::string, 1>, OpTotals> ops;

  Totals(const RuntimeStats& s, const HealthReport& health, size_t most) : stats(s) {
    for (const CallStats& c : s.calls) {
      const std::string op = label_value(c.op), kernel = label_value(c.kernel);
      calls[{op, kernel, label_value(c.mode)}].add({c.calls, c.fallbacks});
      KernelTotals& k = kernels[{op, kernel}];
      k.add(c.failures);
      k.add(c.latency);
    }
    for (const OpStats& o : s.ops) ops[{label_value(o.op)}].add({o.hits, o.misses});
    for (const KernelHealth& h : health.kernels) {
      int& state = kernels[{label_value(h.op), label_value(h.kernel)}].breaker;
      for (const KernelHealth::Breaker& b : h.open)
        state = std::max(state, b.state == BreakerState::kOpen ? 2 : 1);
    }
    limit(calls, most);
    limit(kernels, most);
    limit(ops, most);
  }
};

using Fill = void (*)(const Totals&, std::vector<Metric::Sample>&);

Metric::Sample sample(double value, std::vector<std::string> labels = {}) {
  Metric::Sample s;
  s.labels = std::move(labels), s.value = value;
  return s;
}
Metric::Sample sample(uint64_t value, std::vector<std::string> labels = {}) {
  return sample(static_cast<double>(value), std::move(labels));
}
double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

template <auto Member>
void of_calls(const Totals& t, std::vector<Metric::Sample>& to) {
  for (const auto& [name, c] : t.calls)
    to.push_back(sample(c.*Member, {name[0], name[1], name[2]}));
}
template <auto Member>
void of_ops(const Totals& t, std::vector<Metric::Sample>& to) {
  for (const auto& [name, o] : t.ops) to.push_back(sample(o.*Member, {name[0]}));
}
template <auto Member>
void of_runtime(const Totals& t, std::vector<Metric::Sample>& to) {
  to.push_back(sample(static_cast<uint64_t>(t.stats.*Member)));
}

void failures(const Totals& t, std::vector<Metric::Sample>& to) {
  for (const auto& [name, k] : t.kernels)
    for (size_t i = 0; i < k.failures.by_class.size(); ++i)
      if (const uint64_t count = k.failures.by_class[i]; count != 0)
        to.push_back(sample(count, {name[0], name[1], to_string(static_cast<ErrorClass>(i))}));
}

void call_seconds(const Totals& t, std::vector<Metric::Sample>& to) {
  for (const auto& [name, k] : t.kernels) {
    if (k.count == 0) continue;
    Metric::Sample s = sample(seconds(k.sum_ns), {name[0], name[1]});
    s.count = k.count;
    s.buckets.assign(k.up_to.begin(), k.up_to.end());
    to.push_back(std::move(s));
  }
}

void breaker_state(const Totals& t, std::vector<Metric::Sample>& to) {
  for (const auto& [name, k] : t.kernels)
    to.push_back(sample(static_cast<double>(k.breaker), {name[0], name[1]}));
}

void reloads(const Totals& t, std::vector<Metric::Sample>& to) {
  const RuntimeStats::Reloads& r = t.stats.reloads;
  to.push_back(sample(r.applied, {"applied"}));
  to.push_back(sample(r.refused, {"refused"}));
  to.push_back(sample(r.aborted, {"aborted"}));
}
void reload_seconds(const Totals& t, std::vector<Metric::Sample>& to) {
  to.push_back(sample(seconds(t.stats.reloads.total_ns)));
}
void last_reload(const Totals& t, std::vector<Metric::Sample>& to) {
  to.push_back(sample(seconds(t.stats.reloads.last_ns)));
}

void start_time(const Totals& t, std::vector<Metric::Sample>& to) {
  to.push_back(sample(std::chrono::duration<double>(t.stats.since.time_since_epoch()).count()));
}

constexpr const char* kOp[] = {"op"};
constexpr const char* kOpKernel[] = {"op", "kernel"};
constexpr const char* kOpKernelMode[] = {"op", "kernel", "mode"};
constexpr const char* kOpKernelClass[] = {"op", "kernel", "class"};
constexpr const char* kResult[] = {"result"};
constexpr auto kCounter = MetricInfo::Type::kCounter;
constexpr auto kGauge = MetricInfo::Type::kGauge;

constexpr MetricInfo kInfos[] = {
    {"yard_calls_total", kCounter, "Calls that the kernel has served.", kOpKernelMode},
    {"yard_fallbacks_total", kCounter,
     "Calls that the kernel has served after another kernel had failed.", kOpKernelMode},
    {"yard_failures_total", kCounter, "Runs of the kernel that failed, by class.", kOpKernelClass},
    {"yard_call_seconds", MetricInfo::Type::kHistogram,
     "Duration of served calls; sampled, so its count is below the number of calls.", kOpKernel},
    {"yard_breaker_state", kGauge,
     "The worst circuit breaker of the kernel: 0 closed, 1 half-open, 2 open.", kOpKernel},
    {"yard_cache_hits_total", kCounter, "Served calls whose plan was known.", kOp},
    {"yard_cache_misses_total", kCounter, "Calls that had to select a kernel.", kOp},
    {"yard_selections_total", kCounter, "Selections for a call.", {}},
    {"yard_reloads_total", kCounter,
     "Rules that were loaded or refused, and rollouts that were aborted.", kResult},
    {"yard_reload_seconds_total", kCounter, "Time spent on loading rules that were applied.", {}},
    {"yard_last_reload_seconds",
     kGauge,
     "Duration of the last load of rules that was applied.",
     {}},
    {"yard_generation", kGauge, "The number of the current snapshot.", {}},
    {"yard_plans", kGauge, "Plans in the caches.", {}},
    {"yard_overlays", kGauge, "Entries of ops for policies of calls and scopes.", {}},
    {"yard_retired_objects", kGauge, "Objects of all runtimes that wait to be freed.", {}},
    {"yard_state_bytes", kGauge, "Bytes that kept states of kernels hold.", {}},
    {"yard_sampled_one_in", kGauge, "One call in this number is timed.", {}},
    {"yard_stats_start_time_seconds",
     kGauge,
     "Unix time at which calls, failures, cache and reload counters started at zero.",
     {}},
};
// The order is the order of kInfos.
constexpr Fill kFills[] = {of_calls<&CallTotals::calls>,
                           of_calls<&CallTotals::fallbacks>,
                           failures,
                           call_seconds,
                           breaker_state,
                           of_ops<&OpTotals::hits>,
                           of_ops<&OpTotals::misses>,
                           of_runtime<&RuntimeStats::selections>,
                           reloads,
                           reload_seconds,
                           last_reload,
                           of_runtime<&RuntimeStats::generation>,
                           of_runtime<&RuntimeStats::plans>,
                           of_runtime<&RuntimeStats::overlays>,
                           of_runtime<&RuntimeStats::retired>,
                           of_runtime<&RuntimeStats::state_bytes>,
                           of_runtime<&RuntimeStats::sampled_one_in>,
                           start_time};
static_assert(std::size(kInfos) == std::size(kFills));

}  // namespace

const char* to_string(MetricInfo::Type type) noexcept {
  switch (type) {
    case MetricInfo::Type::kCounter: return "counter";
    case MetricInfo::Type::kGauge: return "gauge";
    case MetricInfo::Type::kHistogram: return "histogram";
  }
  return "?";
}

std::span<const MetricInfo> metric_infos() noexcept { return kInfos; }

std::span<const double> metric_bounds() noexcept {
  static constexpr std::array<double, kBounds> kAll = [] {
    std::array<double, kBounds> to{};
    for (size_t i = 0; i < kBounds; ++i) to[i] = static_cast<double>(bound_ns(i)) / 1e9;
    return to;
  }();
  return kAll;
}

std::vector<Metric> metrics(const RuntimeStats& stats, const HealthReport& health,
                            size_t max_series) {
  const Totals totals(stats, health, max_series);
  std::vector<Metric> to;
  for (size_t i = 0; i < std::size(kInfos); ++i) {
    to.push_back({&kInfos[i], {}});
    kFills[i](totals, to.back().samples);
  }
  return to;
}

std::vector<Metric> metrics(const Runtime& runtime, size_t max_series) {
  return metrics(runtime.stats(), runtime.health().report(), max_series);
}

}  // namespace yard
