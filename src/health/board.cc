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

// A null `key` means the kernel as a whole.
Key full_key(const Record& r, const SmallKey* key) {
  return {r.op, r.kernel, r.backend, key != nullptr ? key->kind : CallKind()};
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
                              const FailedOn& on, Suspects suspects) {
  if (c == ErrorClass::kOk) return success(key, now, false, suspects);
  Record* r = find_or_make(key);
  if (r == nullptr) {
    ++totals_.untracked;
    return {};
  }
  count(r->counts, c, text, now);
  if (c != ErrorClass::kCaller && c != ErrorClass::kDeclined) r->add_failed(key, on, now);
  if (c == ErrorClass::kDeviceLost) return {device_lost(key.kind.device, text, now)};
  const SmallKey k{r, key.kind};
  const auto at = keys_.find(k);
  if (c != ErrorClass::kFault)
    return {false,
            at != keys_.end() && at->second.counts_successes(settings(), now, Evidence::kCall)};
  const bool wrong = on.evidence == Evidence::kResult;
  r->breaker.wrong_results |= wrong;
  if (at != keys_.end()) at->second.wrong_results |= wrong;
  if (!r->breaker.closed()) return {apply_probes(*r, nullptr, r->breaker, text, now)};
  if (at != keys_.end() && !at->second.closed())
    return {apply_probes(*r, &k, at->second, text, now)};
  if (!settings().enabled) return {};
  Breaker* const found = find_or_make(k, now);
  if (found == nullptr) {
    ++totals_.untracked;
    return {};
  }
  Breaker& breaker = *found;
  // The bits are clear though failures are counted: they are those of another kernel of this id, which has been replaced,
  // and successes of this one were not reported.
  const uint64_t bit = key.kind.bit();
  const auto unreported = [&](const std::atomic<uint64_t>* bits, Evidence e) {
    return bits != nullptr && (bits->load() & bit) == 0 &&
           breaker.counts_successes(settings(), now, e);
  };
  if (unreported(suspects.calls, Evidence::kCall)) breaker.calls = {};
  if (unreported(suspects.results, Evidence::kResult)) breaker.results = {};
  breaker.wrong_results |= wrong;
  if (breaker.fault(settings(), now, on.evidence)) {
    std::string why = after_failures(settings(), breaker, on.evidence, text);
    if (const std::string calls = r->failed_text(key.kind.hash()); !calls.empty())
      why += "; failed calls: " + calls;
    open(*r, &k, breaker, std::move(why), now);
    open_kernel_if_due(*r, now);
    BoardUpdate to = update(r, now, suspects, true);
    to.opened = true;
    return to;
  }
  // The bits of other kinds stay as they are.
  BoardUpdate to;
  to.suspect = breaker.counts_successes(settings(), now, Evidence::kCall);
  if (suspects.calls != nullptr && to.suspect)
    to.direct_changed = suspects.calls->fetch_or(bit) == 0;
  if (suspects.results != nullptr && breaker.counts_successes(settings(), now, Evidence::kResult))
    suspects.results->fetch_or(bit);
  return to;
}

BoardUpdate BoardState::review(const Key& key, Time now, Suspects suspects) {
  return update(find(key), now, suspects, false);
}

BoardUpdate BoardState::success(const Key& key, Time now, bool checked, Suspects suspects) {
  Record* r = find(key);
  const auto at = keys_.find({r, key.kind});
  // Late successes do not close a breaker; those of probes are counted by its ProbeSlots.
  if (at != keys_.end() && at->second.closed()) {
    Breaker& b = at->second;
    b.success(settings(), now, checked);
    // Nothing else has changed since the bits were computed, or is repaired by a later report.
    const bool both = checked && b.counts_successes(settings(), now, Evidence::kResult);
    if (b.counts_successes(settings(), now, Evidence::kCall) && (!checked || both))
      return {false, true};
    if (b.is_default(settings(), now)) keys_.erase(at);
  }
  return update(r, now, suspects, false);
}

BoardUpdate BoardState::update(const Record* r, Time now, Suspects suspects, bool changed) const {
  BoardUpdate to{changed};
  if (suspects.calls == nullptr) return to;
  uint64_t calls = 0, results = 0;
  for (const auto& [key, breaker] : keys_) {
    if (key.record != r) continue;
    const uint64_t bit = key.kind.bit();
    if (breaker.counts_successes(settings(), now, Evidence::kCall)) calls |= bit;
    if (breaker.counts_successes(settings(), now, Evidence::kResult)) results |= bit;
  }
  to.direct_changed = (suspects.calls->exchange(calls) == 0) != (calls == 0);
  suspects.results->store(results);
  return to;
}

template <class Self, class F>
void BoardState::for_each(Self& self, const F& f) {
  for (auto& [op, records] : self.records_)
    for (auto& r : records) f(*r, nullptr, r->breaker);
  for (auto& [key, breaker] : self.keys_) f(*key.record, &key, breaker);
}

void BoardState::open(const Record& r, const SmallKey* key, Breaker& breaker, std::string text,
                      Time now) {
  breaker.open(settings(), now);
  emit(Kind::kOpened, r, key, breaker, std::move(text), now);
}

void BoardState::open_kernel_if_due(Record& r, Time now) {
  const auto open_keys = std::count_if(keys_.begin(), keys_.end(), [&](const auto& e) {
    return e.first.record == &r && !e.second.closed();
  });
  if (static_cast<size_t>(open_keys) < kKeysToOpenKernel || !r.breaker.closed()) return;
  open(r, nullptr, r.breaker, fmt::format("{} kinds of calls are open", open_keys), now);
  close_keys(r, now);
}

// The breaker of the kernel decides from now on: closes those of its keys, without events. Their repeats stay.
void BoardState::close_keys(const Record& r, Time now) {
  for (auto& [key, breaker] : keys_)
    if (key.record == &r) breaker.close(now);
}

// Applies the result of probes, if there is one.
bool BoardState::apply_probes(const Record& r, const SmallKey* key, Breaker& breaker,
                              std::string_view why, Time now) {
  switch (breaker.probed()) {
    case ProbeSlots::Result::kNone: return false;
    case ProbeSlots::Result::kClose: close(r, key, breaker, "probes succeeded", now); return true;
    case ProbeSlots::Result::kReopen: open(r, key, breaker, after_probe(why), now); return true;
  }
  return false;
}

void BoardState::close(const Record& r, const SmallKey* key, Breaker& breaker, std::string_view why,
                       Time now) {
  breaker.close(now);
  emit(Kind::kClosed, r, key, breaker, std::string(why), now);
}

bool BoardState::advance(Time now) {
  bool changed = false;
  for_each(*this, [&](const Record& r, const SmallKey* key, Breaker& breaker) {
    if (apply_probes(r, key, breaker, r.counts.last_error, now)) {
      changed = true;
    } else if (breaker.advance(settings(), now)) {
      emit(Kind::kHalfOpen, r, key, breaker, {}, now);
      changed = true;
    }
  });
  std::erase_if(keys_, [&](const auto& e) { return e.second.is_default(settings(), now); });
  return changed;
}

std::optional<Time> BoardState::next_change() const {
  std::optional<Time> next;
  for_each(*this, [&](const Record&, const SmallKey*, const Breaker& breaker) {
    if (breaker.closed() || breaker.until == kManual) return;
    const Time due = breaker.probed() != ProbeSlots::Result::kNone ? Time::min() : breaker.until;
    if (!next || due < *next) next = due;
  });
  return next;
}

std::shared_ptr<const HealthSnapshot> BoardState::snapshot() {
  if (snapshot_ != nullptr) return snapshot_;
  auto made = std::make_shared<HealthSnapshot>();
  for_each(*this, [&](const Record& r, const SmallKey* key, const Breaker& breaker) {
    if (breaker.closed()) return;
    const bool open = breaker.state == BreakerState::kOpen;
    HealthSnapshot::OfOp& of = made->ops_[r.op];
    (key != nullptr ? of.keys : of.kernels)
        .push_back({full_key(r, key), breaker.state, open ? breaker.until : Time{},
                    open ? nullptr : breaker.probes,
                    key != nullptr ? r.failed_text(key->kind.hash()) : r.failed_text({}),
                    breaker.wrong_results});
  });
  made->lost_ = lost_;
  return snapshot_ = std::move(made);
}

void BoardState::emit(Kind kind, const Record& r, const SmallKey* key, const Breaker& breaker,
                      std::string text, Time now) {
  snapshot_.reset();
  switch (kind) {
    case Kind::kOpened: ++totals_.opened; break;
    case Kind::kHalfOpen: ++totals_.half_opened; break;
    case Kind::kClosed: ++totals_.closed; break;
    default: break;
  }
  emit({kind, r.op, r.kernel, key != nullptr ? to_string(full_key(r, key)) : r.op + " " + r.kernel,
        std::move(text), now, kind == Kind::kOpened ? breaker.until : Time{}});
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
  for (const auto& [key, breaker] : keys_) needed.insert(key.record);
  for (auto& [op, records] : records_)
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& r = *records[i];
      if (!r.breaker.closed() || r.breaker.busy() || needed.contains(&r)) continue;
      if (of != nullptr && r.counts.last_error_at >= (*of)[index]->counts.last_error_at) continue;
      of = &records, index = i;
    }
  if (of == nullptr) return false;
  of->erase(of->begin() + static_cast<ptrdiff_t>(index));
  --record_count_;
  return true;
}

Breaker* BoardState::find_or_make(const SmallKey& key, Time now) {
  if (const auto at = keys_.find(key); at != keys_.end()) return &at->second;
  if (keys_.size() >= kMostKeys && !evict_key(now)) return nullptr;
  return &keys_[key];
}

// Drops the closed key with the fewest repeats; of several, the one whose last fault is the oldest.
bool BoardState::evict_key(Time now) {
  auto victim = keys_.end();
  const auto rank = [&](const Breaker& breaker) {
    return std::pair(breaker.repeats_at(settings(), now), breaker.since);
  };
  for (auto at = keys_.begin(); at != keys_.end(); ++at) {
    if (!at->second.closed() || at->second.busy()) continue;
    if (victim == keys_.end() || rank(at->second) < rank(victim->second)) victim = at;
  }
  if (victim == keys_.end()) return false;
  keys_.erase(victim);
  return true;
}

bool BoardState::open(const Key& key, std::string_view why, Time now) {
  Record* r = find_or_make(key);
  if (r == nullptr) return false;
  r->breaker.open_manually(settings(), now);
  close_keys(*r, now);
  emit(Kind::kOpened, *r, nullptr, r->breaker, manual_text(why), now);
  return true;
}

template <class F>
bool BoardState::close_all(const F& concerns, bool manual_too, bool repeats_too,
                           std::string_view why, Time now) {
  bool changed = false;
  for_each(*this, [&](Record& r, const SmallKey* key, Breaker& breaker) {
    if (!concerns(r)) return;
    if (repeats_too) breaker.repeats = 0, r.failed.clear();
    if (breaker.closed()) return breaker.close(now);  // forgets failures
    if (breaker.manual && !manual_too) return breaker.forget_failures();
    close(r, key, breaker, why, now);
    changed = true;
  });
  return changed;
}

bool BoardState::close(const Key& key, Time now) {
  const Record* const of = find(key);
  return close_all([&](const Record& r) { return &r == of; }, true, false, "manually", now);
}

bool BoardState::reset(const Key& key, Time now) {
  const Record* const of = find(key);
  return close_all([&](const Record& r) { return &r == of; }, true, true, "manually", now);
}

bool BoardState::replaced(std::string_view backend, Time now) {
  return close_all([&](const Record& r) { return r.backend == backend; }, false, true,
                   "the plugin was replaced", now);
}

bool BoardState::set_settings(const BreakerSettings& settings, Time now) {
  const uint32_t other = 1 - in_force_.load(std::memory_order_relaxed);
  settings_[other] = usable(settings);
  in_force_.store(other, std::memory_order_release);
  return !settings_[other].enabled &&
         close_all([](const Record&) { return true; }, false, false, "breakers were disabled", now);
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
