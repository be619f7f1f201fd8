// SPDX-License-Identifier: Apache-2.0
#include "health/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/lists.h"

namespace yard::health {

using Kind = BreakerEvent::Kind;

namespace {

// Bounds for kernels that are kept only for their counts, backends of the program, and lost devices.
constexpr size_t kMostRecords = 16'384;
constexpr size_t kMostBackends = 1024, kMostDevices = 1024;

Key kernel_key(const Record& r) { return {r.op, r.kernel, r.backend, {}, 0, {}}; }
Key full_key(const SmallKey& k) {
  return {k.record->op, k.record->kernel, k.record->backend, k.device, k.dtypes, k.sizes};
}

BreakerSettings usable(const BreakerSettings& s) {
  return validate(s).ok() ? s : BreakerSettings();
}

}  // namespace

void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now) {
  // Programs report classes, too, and may pass any number.
  const auto index = static_cast<size_t>(c);
  const bool known = index < to.failures.by_class.size();
  ++to.failures.by_class[known ? index : static_cast<size_t>(ErrorClass::kFault)];
  to.last_error = cut(text);
  to.last_error_at = now;
}

BoardUpdate BoardState::fault(const Key& key, ErrorClass c, std::string_view text, Time now,
                              const FailedOn& on, Watched watched) {
  if (c == ErrorClass::kOk) return success(key, now, false, watched);
  Record* r = find_or_make(key);
  if (r == nullptr) {
    ++totals_.untracked;
    return {};
  }
  count(r->counts, c, text, now);
  if (c != ErrorClass::kCaller && c != ErrorClass::kDeclined) r->add_failed(key, on, now);
  if (c == ErrorClass::kDeviceLost) return {device_lost(key.device, text, now)};
  const SmallKey k = small(r, key);
  const auto at = entries_.find(k);
  if (c != ErrorClass::kFault)
    return {false,
            at != entries_.end() && at->second.machine.watching(settings(), now, Evidence::kCall)};
  const bool wrong = on.evidence == Evidence::kResult;
  r->slot.machine.wrong_results |= wrong;
  if (at != entries_.end()) at->second.machine.wrong_results |= wrong;
  if (!r->slot.closed()) return {apply_probes(*r, nullptr, r->slot, text, now)};
  if (at != entries_.end() && !at->second.closed())
    return {apply_probes(*r, &k, at->second, text, now)};
  if (!settings().enabled) return {};
  Slot* slot = find_or_make(k, now);
  if (slot == nullptr) {
    ++totals_.untracked;
    return {};
  }
  // The bits are clear though failures are counted: they are those of another kernel of this id, which has been replaced,
  // and successes of this one were not reported.
  const uint64_t bit = kind_bit(key);
  const auto unreported = [&](const std::atomic<uint64_t>* bits, Evidence e) {
    return bits != nullptr && (bits->load() & bit) == 0 &&
           slot->machine.watching(settings(), now, e);
  };
  if (unreported(watched.calls, Evidence::kCall)) slot->machine.calls = {};
  if (unreported(watched.results, Evidence::kResult)) slot->machine.results = {};
  bool opened = false;
  slot->machine.wrong_results |= wrong;
  if (slot->machine.fault(settings(), now, on.evidence)) {
    std::string why = after_failures(settings(), slot->machine, on.evidence, text);
    if (const std::string calls = r->failed_text(kind_hash(k.device, k.dtypes, k.sizes));
        !calls.empty())
      why += "; failed calls: " + calls;
    opened = try_open(*r, &k, *slot, std::move(why), now);
    if (opened) open_kernel_if_due(*r, now);
  }
  if (opened) {
    BoardUpdate to = update(r, now, watched, true);
    to.opened = true;
    return to;
  }
  // The bits of other kinds stay as they are.
  BoardUpdate to;
  to.watched = slot->machine.watching(settings(), now, Evidence::kCall);
  if (watched.calls != nullptr && to.watched) to.direct_changed = watched.calls->fetch_or(bit) == 0;
  if (watched.results != nullptr && slot->machine.watching(settings(), now, Evidence::kResult))
    watched.results->fetch_or(bit);
  return to;
}

BoardUpdate BoardState::review(const Key& key, Time now, Watched watched) {
  return update(find(key), now, watched, false);
}

BoardUpdate BoardState::success(const Key& key, Time now, bool checked, Watched watched) {
  Record* r = find(key);
  const auto at = entries_.find(small(r, key));
  // Late successes do not close a breaker; those of probes are counted by its ProbeSlots.
  if (at != entries_.end() && at->second.closed()) {
    Machine& m = at->second.machine;
    m.success(settings(), now, checked);
    // Nothing else has changed since the bits were computed, or is repaired by a later report.
    const bool both = checked && m.watching(settings(), now, Evidence::kResult);
    if (m.watching(settings(), now, Evidence::kCall) && (!checked || both)) return {false, true};
    if (m.is_default(settings(), now) && !at->second.busy()) entries_.erase(at);
  }
  return update(r, now, watched, false);
}

BoardUpdate BoardState::update(const Record* r, Time now, Watched watched, bool changed) const {
  BoardUpdate to{changed};
  if (watched.calls == nullptr) return to;
  uint64_t calls = 0, results = 0;
  for (const auto& [key, slot] : entries_) {
    if (key.record != r) continue;
    const uint64_t bit = kind_bit(key.device, key.dtypes, key.sizes);
    if (slot.machine.watching(settings(), now, Evidence::kCall)) calls |= bit;
    if (slot.machine.watching(settings(), now, Evidence::kResult)) results |= bit;
  }
  to.direct_changed = (watched.calls->exchange(calls) == 0) != (calls == 0);
  watched.results->store(results);
  return to;
}

// The threshold is reached: opens the breaker, unless the dry run only reports it. Whether it is open.
bool BoardState::try_open(const Record& r, const SmallKey* key, Slot& slot, std::string text,
                          Time now) {
  if (dry_run_.only_report(settings().dry_run)) {
    slot.machine.forget_failures();
    ++totals_.would_open;
    emit(Kind::kWouldOpen, r, key, slot, std::move(text), now);
    return false;
  }
  slot.machine.open(settings(), now);
  slot.end_probes();
  emit(Kind::kOpened, r, key, slot, std::move(text), now);
  return true;
}

void BoardState::open_kernel_if_due(Record& r, Time now) {
  const auto open = std::count_if(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e.first.record == &r && !e.second.closed();
  });
  if (static_cast<uint64_t>(open) < settings().open_keys_to_open_kernel || !r.slot.closed()) return;
  std::string text = fmt::format("{} kinds of calls are open", open);
  if (try_open(r, nullptr, r.slot, std::move(text), now)) close_keys(r, now);
}

// The breaker of the kernel decides from now on: closes those of its keys, without events. Their repeats stay.
void BoardState::close_keys(const Record& r, Time now) {
  for (auto& [key, slot] : entries_) {
    if (key.record != &r || slot.machine.manual) continue;
    slot.machine.close(now);
    slot.end_probes();
  }
}

// Applies the result of probes, if there is one.
bool BoardState::apply_probes(const Record& r, const SmallKey* key, Slot& slot,
                              std::string_view why, Time now) {
  if (slot.machine.state != BreakerState::kHalfOpen) return false;
  switch (slot.probes->result()) {
    case ProbeSlots::Result::kNone: return false;
    case ProbeSlots::Result::kClose: close(r, key, slot, "probes succeeded", now); return true;
    case ProbeSlots::Result::kReopen:
      slot.machine.open(settings(), now);
      slot.end_probes();
      emit(Kind::kOpened, r, key, slot, after_probe(why), now);
      return true;
  }
  return false;
}

void BoardState::close(const Record& r, const SmallKey* key, Slot& slot, std::string_view why,
                       Time now) {
  slot.machine.close(now);
  slot.end_probes();
  emit(Kind::kClosed, r, key, slot, std::string(why), now);
}

// Advances one breaker. Whether the snapshot has changed.
bool BoardState::advance(const Record& r, const SmallKey* key, Slot& slot, Time now) {
  if (slot.closed()) return false;
  if (apply_probes(r, key, slot, r.counts.last_error, now)) return true;
  if (slot.machine.until == kManual || now < slot.machine.until) return false;
  const bool was_open = slot.machine.state == BreakerState::kOpen;
  slot.machine.begin_period(settings(), now);
  if (!was_open) {
    slot.probes->next_period(settings().half_open_max_calls);
    return false;
  }
  if (slot.probes == nullptr) slot.probes = std::make_shared<ProbeSlots>();
  slot.probes->begin(settings().half_open_max_calls, settings().success_threshold);
  emit(Kind::kHalfOpen, r, key, slot, {}, now);
  return true;
}

bool BoardState::advance(Time now) {
  bool changed = false;
  for (auto& [op, records] : records_)
    for (auto& r : records) changed |= advance(*r, nullptr, r->slot, now);
  for (auto& [key, slot] : entries_) changed |= advance(*key.record, &key, slot, now);
  std::erase_if(entries_, [&](const auto& e) {
    return e.second.machine.is_default(settings(), now) && !e.second.busy();
  });
  if (changed) snapshot_.reset();
  return changed;
}

std::optional<Time> BoardState::next_change() const {
  std::optional<Time> next;
  const auto consider = [&](const Slot& slot) {
    if (slot.closed() || slot.machine.until == kManual) return;
    const bool decided = slot.machine.state == BreakerState::kHalfOpen &&
                         slot.probes->result() != ProbeSlots::Result::kNone;
    const Time due = decided ? Time::min() : slot.machine.until;
    if (!next || due < *next) next = due;
  };
  for (const auto& [op, records] : records_)
    for (const auto& r : records) consider(r->slot);
  for (const auto& [key, slot] : entries_) consider(slot);
  return next;
}

std::shared_ptr<const HealthSnapshot> BoardState::snapshot() {
  if (snapshot_ != nullptr) return snapshot_;
  auto made = std::make_shared<HealthSnapshot>();
  const auto status = [](const Slot& slot, Key key, std::string failed_calls) {
    const bool open = slot.machine.state == BreakerState::kOpen;
    return BreakerStatus{std::move(key),
                         slot.machine.state,
                         open ? slot.machine.until : Time{},
                         open ? nullptr : slot.probes,
                         std::move(failed_calls),
                         slot.machine.wrong_results};
  };
  for (const auto& [op, records] : records_)
    for (const auto& r : records)
      if (!r->slot.closed())
        made->ops_[op].kernels.push_back(status(r->slot, kernel_key(*r), r->failed_text({})));
  for (const auto& [key, slot] : entries_)
    if (!slot.closed())
      made->ops_[key.record->op].keys.push_back(
          status(slot, full_key(key),
                 key.record->failed_text(kind_hash(key.device, key.dtypes, key.sizes))));
  made->lost_ = lost_;
  return snapshot_ = std::move(made);
}

void BoardState::emit(Kind kind, const Record& r, const SmallKey* key, const Slot& slot,
                      std::string text, Time now) {
  snapshot_.reset();
  switch (kind) {
    case Kind::kOpened: ++totals_.opened; break;
    case Kind::kHalfOpen: ++totals_.half_opened; break;
    case Kind::kClosed: ++totals_.closed; break;
    default: break;
  }
  emit({kind, r.op, r.kernel, key != nullptr ? to_string(full_key(*key)) : r.op + " " + r.kernel,
        std::move(text), now, kind == Kind::kOpened ? slot.machine.until : Time{}});
}

void BoardState::emit(BreakerEvent event) {
  events_.add(std::move(event));
  has_events_.store(true, std::memory_order_release);
}

Record* BoardState::find(const Key& key) const {
  const auto at = records_.find(key.op);
  if (at == records_.end()) return nullptr;
  for (const auto& r : at->second)
    if (r->kernel == key.kernel) return r.get();
  return nullptr;
}

Record* BoardState::find_or_make(const Key& key) {
  if (Record* r = find(key)) {
    // Another backend may have registered a kernel of the same id since.
    if (r->backend != key.backend && !key.backend.empty()) r->backend = key.backend;
    return r;
  }
  if (record_count_ >= kMostRecords && !evict_record()) return nullptr;
  auto made = std::make_unique<Record>();
  made->op = key.op, made->kernel = key.kernel, made->backend = key.backend;
  ++record_count_;
  return records_[key.op].emplace_back(std::move(made)).get();
}

// Drops the kernel whose last failure is the oldest, of those without an active breaker.
bool BoardState::evict_record() {
  std::vector<std::unique_ptr<Record>>* of = nullptr;
  size_t index = 0;
  std::unordered_set<const Record*> needed;
  for (const auto& [key, slot] : entries_) needed.insert(key.record);
  for (auto& [op, records] : records_)
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& r = *records[i];
      if (!r.slot.closed() || r.slot.busy() || needed.contains(&r)) continue;
      if (of != nullptr && r.counts.last_error_at >= (*of)[index]->counts.last_error_at) continue;
      of = &records, index = i;
    }
  if (of == nullptr) return false;
  of->erase(of->begin() + static_cast<ptrdiff_t>(index));
  --record_count_;
  return true;
}

Slot* BoardState::find_or_make(const SmallKey& key, Time now) {
  if (const auto at = entries_.find(key); at != entries_.end()) return &at->second;
  if (entries_.size() >= settings().max_entries && !evict_entry(now)) return nullptr;
  return &entries_[key];
}

// Drops the closed key with the fewest repeats; of several, the one whose last fault is the oldest.
bool BoardState::evict_entry(Time now) {
  auto victim = entries_.end();
  const auto rank = [&](const Slot& slot) {
    return std::pair(slot.machine.repeats_at(settings(), now), slot.machine.since);
  };
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (!at->second.closed() || at->second.busy()) continue;
    if (victim == entries_.end() || rank(at->second) < rank(victim->second)) victim = at;
  }
  if (victim == entries_.end()) return false;
  entries_.erase(victim);
  return true;
}

bool BoardState::open(const Key& key, Extent extent, std::string_view why, Time now,
                      std::optional<std::chrono::nanoseconds> duration) {
  Record* r = find_or_make(key);
  if (r == nullptr) return false;
  const SmallKey k = small(r, key);
  Slot* slot = extent == Extent::kKernel ? &r->slot : find_or_make(k, now);
  if (slot == nullptr) return false;
  slot->machine.open_manually(settings(), now, duration);
  slot->end_probes();
  if (extent == Extent::kKernel) close_keys(*r, now);
  emit(Kind::kOpened, *r, extent == Extent::kKernel ? nullptr : &k, *slot,
       why.empty() ? "manual override" : "manual override: " + cut(why), now);
  return true;
}

bool BoardState::close(const Key& key, Extent extent, Time now) {
  Record* r = find(key);
  if (r == nullptr) return false;
  const SmallKey k = small(r, key);
  bool changed = false;
  const auto close_one = [&](const SmallKey* of, Slot& slot) {
    slot.machine.forget_failures();
    if (slot.closed()) return;
    close(*r, of, slot, "manually", now);
    changed = true;
  };
  if (extent == Extent::kKernel) close_one(nullptr, r->slot);
  for (auto& [at, slot] : entries_)
    if (extent == Extent::kKernel ? at.record == r : at == k) close_one(&at, slot);
  return changed;
}

bool BoardState::reset(const Key& key, Extent extent, Time now) {
  const bool changed = close(key, extent, now);
  Record* r = find(key);
  if (r == nullptr) return changed;
  if (extent == Extent::kKernel) r->slot.machine.repeats = 0, r->failed.clear();
  const SmallKey k = small(r, key);
  for (auto& [at, slot] : entries_)
    if (extent == Extent::kKernel ? at.record == r : at == k) slot.machine.repeats = 0;
  return changed;
}

bool BoardState::set_settings(const BreakerSettings& settings, Time now) {
  const uint32_t other = 1 - in_force_.load(std::memory_order_relaxed);
  settings_[other] = usable(settings);
  in_force_.store(other, std::memory_order_release);
  return !settings_[other].enabled && close_automatic({}, "breakers were disabled", now);
}

bool BoardState::replaced(std::string_view backend, Time now) {
  for (auto& [op, records] : records_)
    for (auto& r : records)
      if (r->backend == backend) r->slot.machine.repeats = 0, r->failed.clear();
  for (auto& [key, slot] : entries_)
    if (key.record->backend == backend) slot.machine.repeats = 0;
  return close_automatic(backend, "the plugin was replaced", now);
}

bool BoardState::close_automatic(std::string_view backend, std::string_view why, Time now) {
  bool changed = false;
  const auto close_one = [&](const Record& r, const SmallKey* key, Slot& slot) {
    if (!backend.empty() && r.backend != backend) return;
    slot.machine.forget_failures();
    if (slot.closed() || slot.machine.manual) return;
    close(r, key, slot, why, now);
    changed = true;
  };
  for (auto& [op, records] : records_)
    for (auto& r : records) close_one(*r, nullptr, r->slot);
  for (auto& [key, slot] : entries_) close_one(*key.record, &key, slot);
  return changed;
}

bool BoardState::device_lost(Device device, std::string_view why, Time now) {
  if (base::contains(lost_, device)) return false;
  if (lost_.size() >= kMostDevices) return false;
  lost_.push_back(device);
  snapshot_.reset();
  emit({Kind::kDeviceLost, {}, {}, yard::to_string(device), cut(why), now, {}});
  return true;
}

bool BoardState::device_back(Device device, Time now) {
  if (std::erase(lost_, device) == 0) return false;
  snapshot_.reset();
  emit({Kind::kDeviceBack, {}, {}, yard::to_string(device), {}, now, {}});
  return true;
}

HealthCounts* BoardState::external(std::string_view backend) {
  const auto at = external_.find(backend);
  if (at != external_.end()) return &at->second;
  if (external_.size() >= kMostBackends) return nullptr;
  return &external_[std::string(backend)];
}

void BoardState::record_success(std::string_view backend, uint64_t count) {
  if (HealthCounts* to = external(backend)) to->successes += count;
}

void BoardState::record_failure(std::string_view backend, ErrorClass error_class,
                                std::string_view text, Time now) {
  if (error_class == ErrorClass::kOk) return record_success(backend);
  if (HealthCounts* to = external(backend)) count(*to, error_class, text, now);
}

Board::Board(const BreakerSettings& settings) : state_(new BoardState(usable(settings))) {}

// In a forked child the parent's state is not deleted: it may have been changing at the fork.
Board::~Board() { delete state_.load(std::memory_order_acquire); }

void Board::abandon() noexcept {
  BoardState* const parents = state_.load(std::memory_order_acquire);
  auto* fresh = new BoardState(parents->settings());
  fresh->abandoned_ = parents;
  state_.store(fresh, std::memory_order_release);
}

}  // namespace yard::health
