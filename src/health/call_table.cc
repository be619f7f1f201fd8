// SPDX-License-Identifier: Apache-2.0
#include "health/call_table.h"

#include <fmt/format.h>

#include <tuple>

#include "base/json.h"

namespace yard::health {

static constexpr const char* kOther = "other";

void Series::add(size_t place, uint64_t n) noexcept {
  // Thread records are more than a page apart, so the hash spreads threads over the blocks.
  const auto thread = reinterpret_cast<uintptr_t>(detail::t_thread);
  static_assert(sizeof blocks_ == 4 * sizeof(Block));
  blocks_[(thread * 0x9e3779b97f4a7c15u) >> 62].of[place].fetch_add(n, std::memory_order_relaxed);
}

void Series::add_sample(uint64_t ns) noexcept {
  add(kSum, ns);
  add(kBuckets + LatencyBuckets::index(ns));
}

Series::Numbers Series::read() const {
  Numbers to{};
  for (const Block& b : blocks_)
    for (size_t i = 0; i < kNumbers; ++i) to[i] += b.of[i].load(std::memory_order_relaxed);
  to[kCalls] = calls.total();
  return to;
}

void Series::add_to(CallTotals& to) const {
  to.calls += calls.total();
  for (const Block& b : blocks_)
    for (size_t i = kFailures; i < kBuckets; ++i)
      to.failures += b.of[i].load(std::memory_order_relaxed);
}

Series* CallClass::series(std::string_view kernel, Mode mode) const noexcept {
  try {
    const std::lock_guard lock(table.lock_);
    std::pair key(std::string(kernel), mode);
    auto at = all_series.find(key);
    if (at == all_series.end() && table.series_ >= CallTable::kMaxSeries) {
      key.first = kOther;
      at = all_series.find(key);
    }
    if (at != all_series.end()) return &at->second;
    ++table.series_;
    return &all_series.try_emplace(key, key.first, mode).first->second;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

const CallClass& CallTable::class_of(const std::string& op,
                                     const std::shared_ptr<const op::Program>& program,
                                     const op::Call& call, bool counting) {
  op::CallKey key;
  key.set(*program, call.args(), call.flags());
  key.add(std::string_view(op));
  const std::lock_guard lock(lock_);
  const auto known = classes_.find(std::string(key.bytes()));
  if (known != classes_.end()) return *known->second;
  if (classes_.size() < (counting ? 2 : 1) * kMaxCallClasses) {
    std::unique_ptr<CallClass> made(
        new CallClass{*this, op, program, std::make_shared<const op::Call>(call)});
    return *classes_.emplace(key.bytes(), std::move(made)).first->second;
  }
  const std::string name = others_.size() < kMaxOps || others_.contains(op) ? op : kOther;
  std::unique_ptr<CallClass>& other = others_[name];
  if (other == nullptr) other.reset(new CallClass{*this, name, nullptr, nullptr});
  return *other;
}

template <class F>
void CallTable::for_each(const F& f) const {
  for (const auto& [key, c] : classes_) f(*c);
  for (const auto& [op, c] : others_) f(*c);
}

void CallTable::read(RuntimeStats& to) const {
  const std::lock_guard lock(lock_);
  to.since = since_;
  std::map<std::string, OpStats> ops;
  for_each([&](const CallClass& c) {
    OpStats& op = ops[c.op];
    op.misses += c.misses.load(std::memory_order_relaxed) - c.misses_before;
    std::string text;
    for (const auto& [key, s] : c.all_series) {
      Series::Numbers n = s.read();
      for (size_t i = 0; i < n.size(); ++i) n[i] -= s.before_[i];
      CallStats stats;
      stats.calls = n[Series::kCalls], stats.fallbacks = n[Series::kFallbacks];
      for (size_t i = 0; i < stats.failures.by_class.size(); ++i)
        stats.failures.by_class[i] = n[Series::kFailures + i];
      if (stats.calls == 0 && stats.failures.total() == 0) continue;
      stats.latency.sum_ns = n[Series::kSum];
      for (uint32_t i = 0; i < LatencyBuckets::kCount; ++i) {
        const uint64_t count = n[Series::kBuckets + i];
        stats.latency.count += count;
        if (count > 0) stats.latency.buckets.push_back({LatencyBuckets::up_to_ns(i), count});
      }
      if (text.empty())
        text = c.call != nullptr ? op::to_string(c.call->to_spec(*c.program)) : kOther;
      stats.op = c.op, stats.kernel = s.kernel, stats.mode = to_string(s.mode), stats.call = text;
      op.calls += stats.calls;
      to.calls.push_back(std::move(stats));
    }
  });
  for (auto& [name, op] : ops) {
    if (op.calls == 0 && op.misses == 0) continue;
    op.op = name;
    op.hits = op.calls - std::min(op.calls, op.misses);
    to.ops.push_back(std::move(op));
  }
  std::ranges::sort(to.calls, [](const CallStats& a, const CallStats& b) {
    return std::tie(a.op, a.kernel, a.mode, a.call) < std::tie(b.op, b.kernel, b.mode, b.call);
  });
}

void CallTable::reset() {
  const std::lock_guard lock(lock_);
  for_each([](const CallClass& c) {
    c.misses_before = c.misses.load(std::memory_order_relaxed);
    for (auto& [key, s] : c.all_series) s.before_ = s.read();
  });
  since_ = std::chrono::system_clock::now();
}

std::map<std::pair<std::string, std::string>, CallTotals> CallTable::totals() const {
  std::map<std::pair<std::string, std::string>, CallTotals> to;
  const std::lock_guard lock(lock_);
  for_each([&](const CallClass& c) {
    for (const auto& [key, s] : c.all_series) s.add_to(to[{c.op, s.kernel}]);
  });
  return to;
}

CallTotals CallTable::totals(const std::string& op, const std::string& kernel,
                             const std::function<bool(const CallClass&)>& of) const {
  CallTotals to;
  const std::lock_guard lock(lock_);
  for_each([&](const CallClass& c) {
    if (c.op != op || (of && (c.call == nullptr || !of(c)))) return;
    for (const auto& [key, s] : c.all_series)
      if (s.kernel == kernel) s.add_to(to);
  });
  return to;
}

void CallTable::restart_in_child() noexcept {
  since_ = std::chrono::system_clock::now();
  for_each([](const CallClass& c) {
    c.misses.store(0, std::memory_order_relaxed);
    c.misses_before = 0;
    for (auto& [key, s] : c.all_series) {
      s.before_ = {};
      for (Series::Block& b : s.blocks_)
        for (auto& n : b.of) n.store(0, std::memory_order_relaxed);
    }
  });
}

}  // namespace yard::health

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
