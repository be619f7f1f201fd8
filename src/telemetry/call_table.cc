// SPDX-License-Identifier: Apache-2.0
// The table of classes and series, and reading it.
#include "telemetry/call_table.h"

#include <algorithm>
#include <array>
#include <new>
#include <tuple>

#include "op/call.h"

namespace yard::telemetry {
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
  std::atomic<uint64_t> buckets[Buckets::kCount] = {};
};

Series::Series(std::string kernel_id, Mode m)
    : kernel(std::move(kernel_id)), mode(m), blocks_(new Block[kBlocks]) {}

Series::~Series() { delete[] blocks_.load(std::memory_order_relaxed); }

Series::Block* Series::block() noexcept {
  Block* all = blocks_.load(std::memory_order_acquire);
  if (all == nullptr) [[unlikely]] {
    auto* made = new (std::nothrow) Block[kBlocks];
    if (made == nullptr || blocks_.compare_exchange_strong(all, made, std::memory_order_acq_rel))
      all = made;
    else
      delete[] made;
  }
  // Records of threads are apart by more than a page.
  const auto thread = reinterpret_cast<uintptr_t>(detail::t_thread);
  static_assert(kBlocks == 4);
  return all != nullptr ? all + ((thread * 0x9e3779b97f4a7c15u) >> 62) : nullptr;
}

void Series::add_sample(uint64_t ns) noexcept {
  Block* const b = block();
  if (b == nullptr) return;
  b->sum_ns.fetch_add(ns, std::memory_order_relaxed);
  b->buckets[Buckets::index(ns)].fetch_add(1, std::memory_order_relaxed);
}

void Series::add_failure(ErrorClass error) noexcept {
  if (Block* const b = block())
    b->failures[static_cast<int>(error)].fetch_add(1, std::memory_order_relaxed);
}

void Series::add_fallback() noexcept {
  if (Block* const b = block()) b->fallbacks.fetch_add(1, std::memory_order_relaxed);
}

CallStats Series::read() const {
  CallStats to;
  to.calls = calls.total();
  uint64_t buckets[Buckets::kCount] = {};
  const Block* const all = blocks_.load(std::memory_order_acquire);
  for (const Block* b = all; all != nullptr && b != all + kBlocks; ++b) {
    const auto add = [](uint64_t& sum, const std::atomic<uint64_t>& part) {
      sum += part.load(std::memory_order_relaxed);
    };
    add(to.latency.sum_ns, b->sum_ns), add(to.fallbacks, b->fallbacks);
    for (size_t i = 0; i < kClasses; ++i) add(to.failures.by_class[i], b->failures[i]);
    for (size_t i = 0; i < std::size(buckets); ++i) add(buckets[i], b->buckets[i]);
  }
  for (uint32_t i = 0; i < Buckets::kCount; ++i) {
    if (buckets[i] == 0) continue;
    to.latency.count += buckets[i];
    to.latency.buckets.push_back({Buckets::up_to_ns(i), buckets[i]});
  }
  return to;
}

uint64_t Series::failures() const noexcept {
  uint64_t sum = 0;
  const Block* const all = blocks_.load(std::memory_order_acquire);
  for (const Block* b = all; all != nullptr && b != all + kBlocks; ++b)
    for (const auto& n : b->failures) sum += n.load(std::memory_order_relaxed);
  return sum;
}

// The counter of calls restarts by itself. The parent's blocks are left behind: another thread may have been writing to one.
void Series::restart() noexcept { blocks_.store(nullptr, std::memory_order_relaxed); }

Series* CallClass::series(std::string_view kernel, Mode mode) const noexcept {
  const auto find = [&](std::string_view id) {
    Series* s = first_series.load(std::memory_order_acquire);
    while (s != nullptr && (s->mode != mode || s->kernel != id)) s = s->next_;
    return s;
  };
  if (Series* const known = find(kernel)) return known;
  try {
    auto& r = table.root_.get();
    const std::lock_guard lock(r.lock);
    table.index(r);
    if (r.series >= CallTable::kMaxSeries) kernel = kOther;
    if (Series* const known = find(kernel)) return known;
    auto made = std::make_unique<Series>(std::string(kernel), mode);
    CallTable::add(r, *this, *made);
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

void CallTable::index(Root& r) const {
  if (std::exchange(r.indexed, true)) return;
  for_each_class([&](const CallClass& c) {
    if (c.call != nullptr)
      r.by_key.emplace(c.key, &c);
    else
      r.others.emplace(c.op, &c);
    for_each_series(c, [&](const Series& s) { add(r, c, s); });
  });
}

void CallTable::add(Root& r, const CallClass& c, const Series& s) {
  r.by_kernel[{c.op, s.kernel}].push_back(&s);
  ++r.series;
}

CallTable::Totals CallTable::sum(const std::vector<const Series*>& all) {
  Totals to;
  for (const Series* s : all) to.calls += s->calls.total(), to.failures += s->failures();
  return to;
}

const CallClass& CallTable::class_of(const std::string& op,
                                     const std::shared_ptr<const op::Program>& program,
                                     const op::Call& call) {
  op::CallKey made_of;
  made_of.set(*program, call.args(), call.flags());
  made_of.add(std::string_view(op));
  const std::string key(made_of.bytes());
  Root& r = root_.get();
  const std::lock_guard lock(r.lock);
  index(r);
  if (const auto it = r.by_key.find(key); it != r.by_key.end()) return *it->second;
  if (r.by_key.size() < kMaxCallClasses) {
    const CallClass& made = add(op, program, std::make_shared<const op::Call>(call), key);
    r.by_key.emplace(made.key, &made);
    return made;
  }
  auto it = r.others.find(op);
  if (it == r.others.end()) {
    const std::string name = r.others.size() < kMaxOps ? op : std::string(kOther);
    it = r.others.find(name);
    if (it == r.others.end()) it = r.others.emplace(name, &add(name, nullptr, nullptr, {})).first;
  }
  return *it->second;
}

void CallTable::read(RuntimeStats& to) const {
  Root& r = root_.get();
  const std::lock_guard lock(r.lock);
  to.since = r.since;
  std::map<std::string, OpStats> ops;
  for_each_class([&](const CallClass& c) {
    OpStats& op = ops[c.op];
    const auto missed = r.misses_before.find(&c);
    op.misses += c.misses.load(std::memory_order_relaxed) -
                 (missed != r.misses_before.end() ? missed->second : 0);
    std::string text;
    for_each_series(c, [&](const Series& s) {
      CallStats stats = s.read();
      if (const auto before = r.series_before.find(&s); before != r.series_before.end())
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
  Root& r = root_.get();
  const std::lock_guard lock(r.lock);
  decltype(r.series_before) series;
  decltype(r.misses_before) misses;
  for_each_class([&](const CallClass& c) {
    misses[&c] = c.misses.load(std::memory_order_relaxed);
    for_each_series(c, [&](const Series& s) { series[&s] = s.read(); });
  });
  r.series_before = std::move(series), r.misses_before = std::move(misses);
  r.since = std::chrono::system_clock::now();
}

std::map<std::pair<std::string, std::string>, CallTable::Totals> CallTable::totals() const {
  Root& r = root_.get();
  const std::lock_guard lock(r.lock);
  index(r);
  std::map<std::pair<std::string, std::string>, Totals> to;
  for (const auto& [kernel, all] : r.by_kernel) to[kernel] = sum(all);
  return to;
}

CallTable::Totals CallTable::totals(const std::string& op, const std::string& kernel) const {
  Root& r = root_.get();
  const std::lock_guard lock(r.lock);
  index(r);
  const auto it = r.by_kernel.find({op, kernel});
  return it != r.by_kernel.end() ? sum(it->second) : Totals();
}

void CallTable::restart_in_child() noexcept {
  root_.replace();
  for_each_class([](const CallClass& c) {
    c.misses.store(0, std::memory_order_relaxed);
    for_each_series(c, [](Series& s) { s.restart(); });
  });
}

}  // namespace yard::telemetry
