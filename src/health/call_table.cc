// SPDX-License-Identifier: Apache-2.0
// The table of classes and series, and reading it.
#include "health/call_table.h"

#include <algorithm>
#include <array>
#include <new>
#include <tuple>

#include "op/call.h"

namespace yard::health {
namespace {

constexpr std::string_view kOther = "other";
constexpr size_t kClasses = std::tuple_size_v<decltype(FailureCounts::by_class)>;  // of errors

void subtract(CallStats& from, const CallStats& before) {
  from.calls -= before.calls, from.fallbacks -= before.fallbacks;
  for (size_t i = 0; i < from.failures.by_class.size(); ++i)
    from.failures.by_class[i] -= before.failures.by_class[i];
  LatencyHistogram& l = from.latency;
  l.count -= before.latency.count, l.sum_ns -= before.latency.sum_ns;
  auto old = before.latency.buckets.begin();
  for (LatencyHistogram::Bucket& bucket : l.buckets) {
    while (old != before.latency.buckets.end() && old->up_to_ns < bucket.up_to_ns) ++old;
    if (old != before.latency.buckets.end() && old->up_to_ns == bucket.up_to_ns)
      bucket.count -= old->count;
  }
  std::erase_if(l.buckets,
                [](const LatencyHistogram::Bucket& bucket) { return bucket.count == 0; });
}

}  // namespace

struct alignas(64) Series::Block {
  std::atomic<uint64_t> sum_ns{0}, fallbacks{0};
  std::atomic<uint64_t> failures[kClasses] = {};
  std::atomic<uint64_t> buckets[LatencyBuckets::kCount] = {};
};

Series::Series(std::string kernel_id, Mode m)
    : kernel(std::move(kernel_id)), mode(m), blocks_(new Block[kBlocks]) {}

Series::~Series() = default;

Series::Block& Series::block() noexcept {
  // Records of threads are apart by more than a page.
  const auto thread = reinterpret_cast<uintptr_t>(detail::t_thread);
  static_assert(kBlocks == 4);
  return blocks_[(thread * 0x9e3779b97f4a7c15u) >> 62];
}

void Series::add_sample(uint64_t ns) noexcept {
  Block& b = block();
  b.sum_ns.fetch_add(ns, std::memory_order_relaxed);
  b.buckets[LatencyBuckets::index(ns)].fetch_add(1, std::memory_order_relaxed);
}

void Series::add_failure(ErrorClass error) noexcept {
  block().failures[static_cast<int>(error)].fetch_add(1, std::memory_order_relaxed);
}

void Series::add_fallback() noexcept { block().fallbacks.fetch_add(1, std::memory_order_relaxed); }

CallStats Series::read() const {
  CallStats to;
  to.calls = calls.total();
  uint64_t buckets[LatencyBuckets::kCount] = {};
  for (const Block* b = blocks_.get(); b != blocks_.get() + kBlocks; ++b) {
    const auto add = [](uint64_t& sum, const std::atomic<uint64_t>& part) {
      sum += part.load(std::memory_order_relaxed);
    };
    add(to.latency.sum_ns, b->sum_ns), add(to.fallbacks, b->fallbacks);
    for (size_t i = 0; i < kClasses; ++i) add(to.failures.by_class[i], b->failures[i]);
    for (size_t i = 0; i < std::size(buckets); ++i) add(buckets[i], b->buckets[i]);
  }
  for (uint32_t i = 0; i < LatencyBuckets::kCount; ++i) {
    if (buckets[i] == 0) continue;
    to.latency.count += buckets[i];
    to.latency.buckets.push_back({LatencyBuckets::up_to_ns(i), buckets[i]});
  }
  return to;
}

uint64_t Series::failures() const noexcept {
  uint64_t sum = 0;
  for (const Block* b = blocks_.get(); b != blocks_.get() + kBlocks; ++b)
    for (const auto& n : b->failures) sum += n.load(std::memory_order_relaxed);
  return sum;
}

// The counter of calls restarts by itself.
void Series::restart() noexcept {
  for (Block* b = blocks_.get(); b != blocks_.get() + kBlocks; ++b) {
    b->~Block();
    new (b) Block;
  }
}

Series* CallClass::series(std::string_view kernel, Mode mode) const noexcept {
  const auto find = [&](std::string_view id) {
    Series* s = first_series.load(std::memory_order_acquire);
    while (s != nullptr && (s->mode != mode || s->kernel != id)) s = s->next_;
    return s;
  };
  if (Series* const known = find(kernel)) return known;
  try {
    const std::lock_guard lock(table.lock_);
    if (table.series_ >= CallTable::kMaxSeries) kernel = kOther;
    if (Series* const known = find(kernel)) return known;
    auto made = std::make_unique<Series>(std::string(kernel), mode);
    table.by_kernel_[{op, made->kernel}].emplace_back(this, made.get());
    ++table.series_;
    made->next_ = first_series.load(std::memory_order_relaxed);
    first_series.store(made.get(), std::memory_order_release);
    return made.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

CallTable::~CallTable() {
  for (CallClass* c = first_.load(std::memory_order_relaxed); c != nullptr;) {
    for (Series* s = c->first_series.load(std::memory_order_relaxed); s != nullptr;)
      delete std::exchange(s, s->next_);
    delete std::exchange(c, c->next);
  }
}

const CallClass& CallTable::add(std::string op, std::shared_ptr<const op::Program> program,
                                std::shared_ptr<const op::Call> call, std::string key) {
  std::unique_ptr<CallClass> made(
      new CallClass{*this, std::move(op), std::move(program), std::move(call), std::move(key)});
  made->next = first_.load(std::memory_order_relaxed);
  first_.store(made.get(), std::memory_order_release);
  return *made.release();
}

CallTable::Totals CallTable::sum(const ClassSeries& all,
                                 const std::function<bool(const CallClass&)>& of) {
  Totals to;
  for (const auto& [c, s] : all)
    if (!of || (c->call != nullptr && of(*c)))
      to.calls += s->calls.total(), to.failures += s->failures();
  return to;
}

const CallClass& CallTable::class_of(const std::string& op,
                                     const std::shared_ptr<const op::Program>& program,
                                     const op::Call& call, bool counting) {
  op::CallKey made_of;
  made_of.set(*program, call.args(), call.flags());
  made_of.add(std::string_view(op));
  const std::string key(made_of.bytes());
  const std::lock_guard lock(lock_);
  if (const auto it = by_key_.find(key); it != by_key_.end()) return *it->second;
  if (by_key_.size() < (counting ? 2 : 1) * kMaxCallClasses) {
    const CallClass& made = add(op, program, std::make_shared<const op::Call>(call), key);
    by_key_.emplace(made.key, &made);
    return made;
  }
  auto it = others_.find(op);
  if (it == others_.end()) {
    const std::string name = others_.size() < kMaxOps ? op : std::string(kOther);
    it = others_.find(name);
    if (it == others_.end()) it = others_.emplace(name, &add(name, nullptr, nullptr, {})).first;
  }
  return *it->second;
}

void CallTable::read(RuntimeStats& to) const {
  const std::lock_guard lock(lock_);
  to.since = since_;
  std::map<std::string, OpStats> ops;
  for_each_class([&](const CallClass& c) {
    OpStats& op = ops[c.op];
    const auto missed = misses_before_.find(&c);
    op.misses += c.misses.load(std::memory_order_relaxed) -
                 (missed != misses_before_.end() ? missed->second : 0);
    std::string text;
    for_each_series(c, [&](const Series& s) {
      CallStats stats = s.read();
      if (const auto before = series_before_.find(&s); before != series_before_.end())
        subtract(stats, before->second);
      if (stats.calls == 0 && stats.failures.total() == 0) return;
      if (text.empty())
        text = c.call != nullptr ? op::to_string(c.call->to_spec(*c.program)) : std::string(kOther);
      stats.op = c.op, stats.kernel = s.kernel, stats.mode = to_string(s.mode), stats.call = text;
      op.calls += stats.calls;
      to.calls.push_back(std::move(stats));
    });
  });
  for (auto& [name, op] : ops) {
    if (op.calls == 0 && op.misses == 0) continue;
    op.op = name;
    op.hits = op.calls - std::min(op.calls, op.misses);
    to.ops.push_back(std::move(op));
  }
  std::sort(to.calls.begin(), to.calls.end(), [](const CallStats& a, const CallStats& b) {
    return std::tie(a.op, a.kernel, a.mode, a.call) < std::tie(b.op, b.kernel, b.mode, b.call);
  });
}

void CallTable::reset() {
  const std::lock_guard lock(lock_);
  decltype(series_before_) series;
  decltype(misses_before_) misses;
  for_each_class([&](const CallClass& c) {
    misses[&c] = c.misses.load(std::memory_order_relaxed);
    for_each_series(c, [&](const Series& s) { series[&s] = s.read(); });
  });
  series_before_ = std::move(series), misses_before_ = std::move(misses);
  since_ = std::chrono::system_clock::now();
}

std::map<std::pair<std::string, std::string>, CallTable::Totals> CallTable::totals() const {
  const std::lock_guard lock(lock_);
  std::map<std::pair<std::string, std::string>, Totals> to;
  for (const auto& [kernel, all] : by_kernel_) to[kernel] = sum(all, {});
  return to;
}

CallTable::Totals CallTable::totals(const std::string& op, const std::string& kernel,
                                    const std::function<bool(const CallClass&)>& of) const {
  const std::lock_guard lock(lock_);
  const auto it = by_kernel_.find({op, kernel});
  return it != by_kernel_.end() ? sum(it->second, of) : Totals();
}

void CallTable::restart_in_child() noexcept {
  series_before_.clear(), misses_before_.clear();
  since_ = std::chrono::system_clock::now();
  for_each_class([](const CallClass& c) {
    c.misses.store(0, std::memory_order_relaxed);
    for_each_series(c, [](Series& s) { s.restart(); });
  });
}

}  // namespace yard::health
