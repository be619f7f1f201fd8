// SPDX-License-Identifier: Apache-2.0
#include "health/board.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/lists.h"

namespace yard::health {

using Kind = BreakerEvent::Kind;

namespace {

// Bounds for kernels that have failed, backends of the program, and lost devices.
constexpr size_t kMostRecords = 16'384;
constexpr size_t kMostBackends = 1024, kMostDevices = 1024;

Key full_key(const BreakerKey& key) {
  const Record& r = *key.record;
  return {r.op, r.kernel, r.backend, key.kind.value_or(CallKind())};
}

BreakerSettings usable(const BreakerSettings& s) {
  return validate(s).ok() ? s : BreakerSettings();
}

// Calls of functions are not divided into kinds.
bool is_divided(const BreakerKey& key) { return key.kind && *key.kind != CallKind(); }

}  // namespace

void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now) {
  // Programs report classes, too, and may pass any number.
  const auto index = static_cast<size_t>(c);
  const bool known = index < to.failures.by_class.size();
  ++to.failures.by_class[known ? index : static_cast<size_t>(ErrorClass::kFault)];
  to.last_error = cut(text);
  to.last_error_at = now;
}

BoardState::BoardState(const BreakerSettings& settings) : settings_(usable(settings)) {}

BoardUpdate BoardState::fault(const Key& key, ErrorClass c, std::string_view text, Time now,
                              const FailedOn& on) {
  Record* r = find_or_make(key);
  if (r == nullptr) {
    ++totals_.untracked;
    return {};
  }
  count(r->counts, c, text, now);
  if (c != ErrorClass::kCaller && c != ErrorClass::kDeclined) r->add_failed(key, on, now);
  if (c == ErrorClass::kDeviceLost) return {device_lost(key.kind.device, text, now)};
  if (std::exchange(r->identity, on.kernel) != on.kernel)
    for (auto& [key_of, breaker] : breakers_)
      if (key_of.record == r) breaker.forget_failures();
  const BreakerKey k{r, key.kind};
  const auto at = breakers_.find(k), whole = breakers_.find({r, {}});
  if (c != ErrorClass::kFault) return {};
  const bool wrong = on.evidence == Evidence::kResult;
  for (const auto deciding : {whole, at}) {
    if (deciding == breakers_.end()) continue;
    deciding->second.wrong_results |= wrong;
    if (!deciding->second.closed()) return {apply_probes(*deciding, text, now)};
  }
  if (!settings_.enabled) return {};
  const bool begins = at == breakers_.end();
  Breaker* const breaker = find_or_make(k, now);
  if (breaker == nullptr) {
    ++totals_.untracked;
    return {};
  }
  if (begins) breaker->seen = on.successes, breaker->wrong_results = wrong;
  const BoardUpdate to{begins && is_divided(k)};
  if (to.changed) snapshot_.reset();
  if (!breaker->fault(settings_, now, on.evidence, on.successes)) return to;
  std::string why = after_failures(settings_, *breaker, on.evidence, text);
  if (const std::string calls = r->failed_text(key.kind.hash()); !calls.empty())
    why += "; failed calls: " + calls;
  open(*breakers_.find(k), std::move(why), now);
  open_kernel_if_due(*r, now);
  return {.changed = true, .opened = true};
}

void BoardState::found_right(const Key& key, Time now) {
  const auto at = breakers_.find({find(key), key.kind});
  // Late successes do not close a breaker; those of probes are counted by its ProbeSlots.
  if (at != breakers_.end() && at->second.closed())
    at->second.results.success(settings_, now, 1);
}

void BoardState::open(Entry& entry, std::string text, Time now) {
  entry.second.open(settings_, now);
  emit(Kind::kOpened, entry, std::move(text), now);
}

void BoardState::open_kernel_if_due(Record& r, Time now) {
  size_t open_kinds = 0;
  bool wrong = false;
  for (const auto& [key, breaker] : breakers_) {
    if (key.record != &r || !key.kind || breaker.closed()) continue;
    ++open_kinds, wrong |= breaker.wrong_results;
  }
  if (open_kinds < kKeysToOpenKernel) return;
  Entry& whole = *breakers_.try_emplace({&r, {}}).first;
  whole.second.wrong_results = wrong;
  open(whole, fmt::format("{} kinds of calls are open", open_kinds), now);
  close_kinds(r, now);
}

// The breaker of the kernel decides from now on: closes those of its kinds, without events. Their repeats stay.
void BoardState::close_kinds(const Record& r, Time now) {
  for (auto& [key, breaker] : breakers_)
    if (key.record == &r && key.kind) breaker.close(now);
}

// Applies the result of probes, if there is one.
bool BoardState::apply_probes(Entry& entry, std::string_view why, Time now) {
  switch (entry.second.probed()) {
    case ProbeSlots::Result::kNone: return false;
    case ProbeSlots::Result::kClose: close(entry, "probes succeeded", now); return true;
    case ProbeSlots::Result::kReopen: open(entry, after_probe(why), now); return true;
  }
  return false;
}

void BoardState::close(Entry& entry, std::string_view why, Time now) {
  entry.second.close(now);
  emit(Kind::kClosed, entry, std::string(why), now);
}

bool BoardState::advance(Time now) {
  bool changed = false;
  for (Entry& e : breakers_) {
    if (apply_probes(e, e.first.record->counts.last_error, now)) {
      changed = true;
    } else if (e.second.advance(settings_, now)) {
      emit(Kind::kHalfOpen, e, {}, now);
      changed = true;
    }
  }
  const auto is_old = [&](const Entry& e) { return e.second.forgotten_at(settings_) <= now; };
  if (std::erase_if(breakers_, is_old) > 0) snapshot_.reset(), changed = true;
  return changed;
}

std::optional<Time> BoardState::next_change() const {
  Time next = Time::max();
  for (const auto& [key, breaker] : breakers_) {
    const bool decided = breaker.probed() != ProbeSlots::Result::kNone;
    next = std::min(next, decided            ? Time::min()
                          : breaker.closed() ? breaker.forgotten_at(settings_)
                                             : breaker.until);
  }
  return next != Time::max() ? std::optional(next) : std::nullopt;
}

std::shared_ptr<const HealthSnapshot> BoardState::snapshot() {
  if (snapshot_ != nullptr) return snapshot_;
  auto made = std::make_shared<HealthSnapshot>();
  for (const auto& [key, breaker] : breakers_) {
    const Record& r = *key.record;
    if (breaker.closed()) {
      if (is_divided(key)) made->ops_[r.op].counting.push_back({r.kernel, *key.kind});
      continue;
    }
    const bool open = breaker.state == BreakerState::kOpen;
    HealthSnapshot::OfOp& of = made->ops_[r.op];
    (key.kind ? of.keys : of.kernels)
        .push_back({full_key(key), breaker.state, open ? breaker.until : Time{},
                    open ? nullptr : breaker.probes,
                    r.failed_text(key.kind ? std::optional(key.kind->hash()) : std::nullopt),
                    breaker.wrong_results});
  }
  made->lost_ = lost_;
  return snapshot_ = std::move(made);
}

void BoardState::emit(Kind kind, const Entry& entry, std::string text, Time now) {
  const auto& [key, breaker] = entry;
  const Record& r = *key.record;
  snapshot_.reset();
  switch (kind) {
    case Kind::kOpened: ++totals_.opened; break;
    case Kind::kHalfOpen: ++totals_.half_opened; break;
    case Kind::kClosed: ++totals_.closed; break;
    default: break;
  }
  emit({kind, r.op, r.kernel, key.kind ? to_string(full_key(key)) : r.op + " " + r.kernel,
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
  if (record_count_ >= kMostRecords) return nullptr;
  auto made = std::make_unique<Record>();
  made->op = key.op, made->kernel = key.kernel, made->backend = key.backend;
  ++record_count_;
  return records_[key.op].emplace_back(std::move(made)).get();
}

Breaker* BoardState::find_or_make(const BreakerKey& key, Time now) {
  if (const auto at = breakers_.find(key); at != breakers_.end()) return &at->second;
  if (breakers_.size() >= kMostKeys && !evict(now)) return nullptr;
  return &breakers_[key];
}

// Drops the closed breaker with the fewest repeats; of several, the one whose last fault is the oldest.
bool BoardState::evict(Time now) {
  auto victim = breakers_.end();
  const auto rank = [&](const Breaker& breaker) {
    return std::pair(breaker.repeats_at(settings_, now), breaker.since);
  };
  for (auto at = breakers_.begin(); at != breakers_.end(); ++at) {
    if (!at->second.closed() || at->second.busy()) continue;
    if (victim == breakers_.end() || rank(at->second) < rank(victim->second)) victim = at;
  }
  if (victim == breakers_.end()) return false;
  breakers_.erase(victim);
  snapshot_.reset();
  return true;
}

bool BoardState::open(const Key& key, std::string_view why, Time now) {
  Record* r = find_or_make(key);
  if (r == nullptr) return false;
  Entry& whole = *breakers_.try_emplace({r, {}}).first;
  whole.second.open_manually(settings_, now);
  close_kinds(*r, now);
  emit(Kind::kOpened, whole, manual_text(why), now);
  return true;
}

template <class F>
bool BoardState::close_all(const F& concerns, bool manual_too, bool repeats_too,
                           std::string_view why, Time now) {
  bool changed = false;
  if (repeats_too)
    for (auto& [op, records] : records_)
      for (auto& r : records)
        if (concerns(*r)) r->failed.clear();
  for (Entry& e : breakers_) {
    Breaker& breaker = e.second;
    if (!concerns(*e.first.record)) continue;
    if (repeats_too) breaker.repeats = 0;
    if (breaker.closed()) {
      breaker.close(now);  // forgets failures
    } else if (breaker.manual && !manual_too) {
      breaker.forget_failures();
    } else {
      close(e, why, now);
      changed = true;
    }
  }
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
  settings_ = usable(settings);
  return !settings_.enabled &&
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

void BoardState::restart() {
  breakers_.clear(), records_.clear(), record_count_ = 0;
  lost_.clear(), external_.clear();
  totals_ = {}, events_ = {}, snapshot_.reset();
  has_events_.store(false, std::memory_order_release);
}

}  // namespace yard::health
