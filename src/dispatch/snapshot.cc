// SPDX-License-Identifier: Apache-2.0
#include "dispatch/snapshot.h"

namespace yard::dispatch {
namespace {

constexpr size_t kFirstTable = 16;
constexpr size_t kOwnHolders = 2;  // the entry itself and its snapshot

template <class T>
void free_as(void* p) {
  delete static_cast<T*>(p);
}

struct OldPlans {
  base::Mutex mutex{base::Rank::kReclaimer};
  std::vector<std::deque<MadePlan>> of;
};
constexpr size_t kFreedAtOnce = 32;

void put(PlanTable& table, const exec::Plan* plan) noexcept {
  size_t i = plan->hash & (table.size() - 1);
  while (table[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & (table.size() - 1);
  table[i].store(plan, std::memory_order_release);
}

uint64_t next_memo_version() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

void MemoVersion::renew() noexcept { value_.store(next_memo_version(), std::memory_order_seq_cst); }

void MemoVersion::invalidate() noexcept {
  uint64_t now = value_.load(std::memory_order_relaxed);
  while (now != 0 &&
         !value_.compare_exchange_weak(now, next_memo_version(), std::memory_order_seq_cst)) {
  }
}

void KnownCalls::add(const op::Program& program, const op::Call& call) {
  op::CallKey key;
  key.set(program, call.args(), call.flags());
  const size_t hash = op::CallKeyHash()(key.bytes());
  if (std::erase_if(all, [&](const Known& k) { return k.hash == hash; }) == 0 &&
      all.size() == kMost)
    all.erase(all.begin());
  all.push_back({hash, std::make_shared<const op::Call>(call)});
}

// The deleter allocates nothing, because memory may have run out.
std::shared_ptr<Entry> Entry::share(std::unique_ptr<Entry> made) {
  return {made.release(), [](Entry* e) {
            std::vector<const void*> held_by = std::move(e->handles_);
            held_by.push_back(e);
            if (e->inside_ != nullptr) held_by.push_back(e->inside_);
            auto retired = std::move(e->retired_);
            *retired = {e, free_as<Entry>, std::move(held_by)};
            base::reclaimer().retire(std::move(retired));
          }};
}

Entry::Entry(select::CandidateSet candidates, uint64_t generation, MemoVersion& memos,
             std::shared_ptr<health::CallTable> calls, const Entry* old, const void* inside)
    : program_(&candidates.program()),
      recipe_(Recipe::compile(candidates)),
      table_(nullptr),
      generation_(generation),
      memos_(memos),
      candidates_(std::move(candidates)),
      calls_(std::move(calls)),
      known_calls_(old != nullptr && inside == nullptr ? old->known_calls_
                                                       : std::make_shared<KnownCalls>()),
      inside_(inside) {
  for (const select::KernelCandidate& c : candidates_.all()) {
    std::shared_ptr<const exec::KernelStats> stats;
    for (size_t i = 0; old != nullptr && i < old->stats_.size(); ++i)
      if (old->candidates_.all()[i].kernel == c.kernel) stats = old->stats_[i];
    if (stats == nullptr) {
      const auto made = std::make_shared<exec::KernelStats>();
      made->before = calls_->totals(name(), c.kernel->id);
      stats = made;
    }
    stats_.push_back(std::move(stats));
  }
  handles_.reserve(kOwnHolders);
  table_ = new PlanTable(kFirstTable);  // last, because from here on ~Entry() frees it
}

Entry::~Entry() {
  delete table_.load(std::memory_order_relaxed);
  if (plans_.size() <= kFreedAtOnce) return;
  try {
    OldPlans& old = base::process_wide<OldPlans>();
    const std::lock_guard lock(old.mutex);
    old.of.push_back(std::move(plans_));
  } catch (const std::bad_alloc&) {  // the plans are freed here
  }
}

void free_some_old_plans() {
  OldPlans& old = base::process_wide<OldPlans>();
  const std::lock_guard lock(old.mutex);
  for (size_t i = 0; i < kFreedAtOnce && !old.of.empty(); ++i) {
    old.of.back().pop_back();
    if (old.of.back().empty()) old.of.pop_back();
  }
}

exec::Plan::Ptr Entry::plan(const Key& key, const select::Order& order,
                            const op::Call& call) const {
  size_t tries = exec::Plan::kMaxAttempts;
  if (const auto& said = candidates_.settings().fallbacks) tries = std::min(tries, *said + 1);
  // A half-open kernel may be skipped, so plan for others to take its place.
  const size_t most = candidates_.half_open() ? exec::Plan::kMaxAttempts : tries;
  std::vector<exec::Attempt> attempts;
  for (uint16_t i : order) {
    attempts.push_back({candidates_.all()[i].kernel.get(), stats_[i].get()});
    if (attempts.size() == most) break;
  }
  auto made = exec::Plan::make(key.hash, {key.w, key.words}, attempts);
  made->tries = static_cast<uint8_t>(std::min<size_t>(tries, made->attempt_count));
  for (size_t i = 0; i < made->attempt_count; ++i) made->modes[i] = order.mode_of(i);
  const auto& watch = candidates_.settings().watch;
  if (watch.any() || watch.observers != nullptr || candidates_.saves_inputs() ||
      candidates_.half_open() || order.transforms)
    made->direct = made->only_workspace = false;
  const bool counting =
      std::ranges::any_of(candidates_.all(), [](const auto& c) { return !c.counting.empty(); });
  made->count_in(calls_->class_of(name(), candidates_.op_record().op->program, call, counting));
  return made;
}

void Entry::make_table(size_t size) {
  auto table = std::make_unique<PlanTable>(size);
  for (const MadePlan& m : plans_) put(*table, m.plan.get());
  PlanTable* const old = table_.exchange(table.release(), std::memory_order_acq_rel);
  base::reclaimer().retire(old, free_as<PlanTable>, {this});
}

template <class F>
size_t Entry::evict(size_t most, const F& goes) {
  std::vector<exec::Plan::Ptr> gone;
  size_t looks = 2 * plans_.size();
  for (; looks > 0 && !plans_.empty() && gone.size() < most; --looks) {
    MadePlan m = std::move(plans_.front());
    plans_.pop_front();
    if (m.plan->pins.load(std::memory_order_relaxed) > 0 || !goes(*m.plan, m.at))
      plans_.push_back(std::move(m));
    else
      gone.push_back(std::move(m.plan));
  }
  if (gone.empty()) return 0;
  make_table(std::max(kFirstTable, std::bit_ceil(plans_.size() * 2 + 2)));
  memos_.invalidate();  // before the plans are retired
  for (exec::Plan::Ptr& p : gone)
    base::reclaimer().retire(p.release(), free_as<exec::Plan>, {this});
  return gone.size();
}

void Entry::add_handle(const void* node) const {
  if (const size_t n = handles_.size() + 1 + kOwnHolders; n > handles_.capacity())
    handles_.reserve(2 * n);
  handles_.push_back(node);
}

size_t Entry::sweep(std::chrono::steady_clock::time_point before) {
  return evict(SIZE_MAX, [&](const exec::Plan&, auto made) { return made < before; });
}

const exec::Plan* Entry::insert(const Key& key, exec::Plan::Ptr plan, size_t limit) {
  if (const exec::Plan* const stored = find(key)) return stored;
  // Calls with a memo do not note uses. An eviction makes memos stale, so later calls note theirs.
  if (plans_.size() >= limit)
    evict(plans_.size() - limit + std::max<size_t>(1, limit / 4),
          [](const exec::Plan& p, auto) { return !p.used_again.exchange(false); });
  const size_t size = table_.load(std::memory_order_relaxed)->size();
  if ((plans_.size() + 1) * 2 > size) make_table(size * 2);
  const exec::Plan* const added = plan.get();
  // Read the clock only if needed, because it costs more than the rest of an insertion.
  const bool ages = candidates_.settings().cache.lifetime.count() > 0;
  plans_.push_back({std::move(plan), ages ? std::chrono::steady_clock::now()
                                          : std::chrono::steady_clock::time_point()});
  put(*table_.load(std::memory_order_relaxed), added);
  return added;
}

std::shared_ptr<const Snapshot> Snapshot::share(std::unique_ptr<Snapshot> made) {
  *made->retired_ = {made.get(), free_as<Snapshot>, {made.get()}};
  return {made.release(), [](Snapshot* s) { base::reclaimer().retire(std::move(s->retired_)); }};
}

const Entry* Snapshot::overlay(uint32_t index, const OverlayKey& key) const noexcept {
  const uint32_t first = place(index, key.hash);
  for (uint32_t i = 0; i < kProbe; ++i) {
    const Entry* e = overlays_[(first + i) % kOverlays].load(base::kFollow);
    if (e != nullptr && e->overlay_key == key && e->index() == index) return e;
  }
  return nullptr;
}

std::shared_ptr<Entry> Snapshot::put_overlay(std::shared_ptr<Entry> entry) const {
  if (overlay(entry->index(), entry->overlay_key) != nullptr) return nullptr;
  const uint32_t first = place(entry->index(), entry->overlay_key.hash);
  uint32_t at = (first + next_victim_++ % kProbe) % kOverlays;
  for (uint32_t i = 0; i < kProbe; ++i)
    if (overlay_owners_[(first + i) % kOverlays] == nullptr) at = (first + i) % kOverlays;
  const Entry* raw = entry.get();
  std::shared_ptr<Entry> old = std::exchange(overlay_owners_[at], std::move(entry));
  overlays_[at].store(raw, std::memory_order_release);
  return old;
}

std::vector<std::shared_ptr<Entry>> Snapshot::all_entries() const {
  std::vector<std::shared_ptr<Entry>> all = entries;
  all.insert(all.end(), overlay_owners_.begin(), overlay_owners_.end());
  std::erase(all, nullptr);
  return all;
}

}  // namespace yard::dispatch
