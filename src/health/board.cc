// SPDX-License-Identifier: Apache-2.0
#include "health/board.h"

#include <fmt/format.h>

#include "base/events.h"
#include "base/text.h"

namespace yard::health {

using Kind = BreakerEvent::Kind;

namespace {

constexpr size_t kMostRecords = 16'384, kMostBackends = 1024, kMostDevices = 1024;

void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now) {
  // Programs report classes, too, and may pass any number.
  const auto index = static_cast<size_t>(c);
  const bool known = index < to.failures.by_class.size();
  ++to.failures.by_class[known ? index : static_cast<size_t>(ErrorClass::kFault)];
  to.last_error = base::printable(text, kMostText);
  to.last_error_at = now;
}

// Returns false for the kind of all calls of a function.
bool is_divided(const CallKind* kind) { return kind != nullptr && *kind != CallKind(); }

}  // namespace

BoardUpdate BoardState::fault(const Key& key, ErrorClass c, std::string_view text, Time now,
                              const FailedOn& on) {
  Record* const record = find_or_make(key);
  if (record == nullptr) {
    ++totals_.untracked;
    return {};
  }
  Record& r = *record;
  count(r, c, text, now);
  if (c != ErrorClass::kCaller && c != ErrorClass::kDeclined) r.add_failed(key.kind, on, now);
  if (c == ErrorClass::kDeviceLost) return {device_lost(key.kind.device, text, now)};
  if (std::exchange(r.identity, on.kernel) != on.kernel)
    for (auto& [kind, breaker] : r.kinds) breaker.forget_failures();
  if (c != ErrorClass::kFault) return {};
  const auto at = r.kinds.find(key.kind);
  Breaker* of_kind = at != r.kinds.end() ? &at->second : nullptr;
  if (!r.whole.closed() || (of_kind != nullptr && !of_kind->closed())) {
    const Entry deciding =
        r.whole.closed() ? Entry{r, &key.kind, *of_kind} : Entry{r, nullptr, r.whole};
    deciding.breaker.wrong_results |= on.wrong;
    return {apply_probes(deciding, text, now)};
  }
  if (!settings_.enabled) return {};
  const bool begins = of_kind == nullptr;
  if (begins) of_kind = make(r, key.kind);
  if (of_kind == nullptr) {
    ++totals_.untracked;
    return {};
  }
  if (begins) of_kind->seen = on.successes;
  of_kind->wrong_results |= on.wrong;
  const std::string reached = of_kind->fault(settings_, now, on.wrong, on.successes);
  if (reached.empty()) return {.changed = begins && is_divided(&key.kind)};
  std::string why = with_reason(reached, text, ", the last: ");
  if (const std::string calls = r.failed_text(&key.kind); !calls.empty())
    why += "; failed calls: " + calls;
  open({r, &key.kind, *of_kind}, std::move(why), now);
  open_kernel_if_due(r, now);
  return {.changed = true, .opened = true};
}

void BoardState::found_right(const Key& key, Time now) {
  const auto r = records_.find({key.op, key.kernel});
  if (r == records_.end()) return;
  const auto at = r->second.kinds.find(key.kind);
  // Late results do not close a breaker. ProbeSlots counts the results of probes.
  if (at != r->second.kinds.end() && at->second.closed())
    at->second.results.success(settings_, now, 1);
}

void BoardState::open(const Entry& entry, std::string text, Time now) {
  entry.breaker.open(settings_, now);
  emit(Kind::kOpened, entry, std::move(text), now);
}

// From then on, the breaker of the kernel decides. The breakers of its kinds close without events
// and keep their repeats.
void BoardState::open_kernel_if_due(Record& r, Time now) {
  size_t open_kinds = 0;
  bool wrong = false;
  for (const auto& [kind, breaker] : r.kinds)
    if (!breaker.closed()) ++open_kinds, wrong |= breaker.wrong_results;
  if (open_kinds < kKeysToOpenKernel) return;
  r.whole.wrong_results = wrong;
  open({r, nullptr, r.whole}, fmt::format("{} kinds of calls are open", open_kinds), now);
  for (auto& [kind, breaker] : r.kinds) breaker.close(now);
}

// Returns whether probes have closed or reopened the breaker.
bool BoardState::apply_probes(const Entry& entry, std::string_view why, Time now) {
  const ProbeSlots::Result result = entry.breaker.probed();
  if (result == ProbeSlots::Result::kClose) close(entry, "probes succeeded", now);
  if (result == ProbeSlots::Result::kReopen) open(entry, with_reason("a probe failed", why), now);
  return result != ProbeSlots::Result::kNone;
}

void BoardState::close(const Entry& entry, std::string_view why, Time now) {
  entry.breaker.close(now);
  emit(Kind::kClosed, entry, std::string(why), now);
}

bool BoardState::advance(Time now) {
  bool changed = false;
  for (auto& [id, record] : records_) {
    for_each(record, [&](const Entry& e) {
      if (apply_probes(e, e.record.last_error, now)) {
        changed = true;
      } else if (e.breaker.advance(settings_, now)) {
        emit(Kind::kHalfOpen, e, {}, now);
        changed = true;
      }
    });
    const size_t forgotten = std::erase_if(
        record.kinds, [&](const auto& k) { return k.second.forgotten_at(settings_) <= now; });
    if (forgotten > 0) kinds_ -= forgotten, snapshot_.reset(), changed = true;
  }
  return changed;
}

std::optional<Time> BoardState::next_change() const {
  Time next = kManual;
  for (const auto& [id, record] : records_)
    for_each(const_cast<Record&>(record), [&](const Entry& e) {
      if (e.breaker.probed() != ProbeSlots::Result::kNone)
        next = Time::min();
      else if (!e.breaker.closed())
        next = std::min(next, e.breaker.until);
      else if (e.kind != nullptr)
        next = std::min(next, e.breaker.forgotten_at(settings_));
    });
  return next != kManual ? std::optional(next) : std::nullopt;
}

std::shared_ptr<const HealthSnapshot> BoardState::snapshot() {
  if (snapshot_ != nullptr) return snapshot_;
  auto made = std::make_shared<HealthSnapshot>();
  for (auto& [id, record] : records_)
    for_each(record, [&](const Entry& e) {
      const auto& [r, kind, breaker] = e;
      if (breaker.closed()) {
        if (is_divided(kind)) made->ops_[r.op].counting.push_back({r.kernel, *kind});
        return;
      }
      const bool open = breaker.state == BreakerState::kOpen;
      HealthSnapshot::OfOp& of = made->ops_[r.op];
      (kind != nullptr ? of.keys : of.kernels)
          .push_back({{r.op, r.kernel, r.backend, kind != nullptr ? *kind : CallKind()},
                      breaker.state,
                      open ? breaker.until : Time{},
                      open ? nullptr : breaker.probes,
                      r.failed_text(kind),
                      breaker.wrong_results,
                      breaker.manual ? breaker.why : ""});
    });
  made->lost_ = lost_;
  return snapshot_ = std::move(made);
}

void BoardState::emit(Kind kind, const Entry& e, std::string text, Time now) {
  const Record& r = e.record;
  totals_.opened += kind == Kind::kOpened;
  totals_.half_opened += kind == Kind::kHalfOpen;
  totals_.closed += kind == Kind::kClosed;
  std::string subject = r.op + " " + r.kernel;
  if (e.kind != nullptr) subject += fmt::format(" ({})", to_string(*e.kind));
  emit({kind, r.op, r.kernel, std::move(subject), std::move(text), now,
        kind == Kind::kOpened ? e.breaker.until : Time{}});
}

void BoardState::emit(BreakerEvent event) {
  snapshot_.reset();
  event.who = base::Actor::current();
  events_.add(std::move(event));
  totals_.events_dropped = events_.dropped();
  has_events_.store(true, std::memory_order_release);
}

std::vector<BreakerEvent> BoardState::take_events() {
  has_events_.store(false, std::memory_order_release);
  return events_.take();
}

Record* BoardState::find_or_make(const Key& key) {
  const std::pair id(key.op, key.kernel);
  if (records_.size() >= kMostRecords && !records_.contains(id)) return nullptr;
  Record& r = records_[id];
  r.op = key.op, r.kernel = key.kernel;
  // Another backend may have registered a kernel of this id since.
  if (!key.backend.empty()) r.backend = key.backend;
  return &r;
}

// Drops closed breakers if there are too many. Returns null if that does not make room.
Breaker* BoardState::make(Record& to, const CallKind& kind) {
  const auto goes = [&](const auto& k) {
    const bool drop = kinds_ >= kMostKeys && k.second.closed() && !k.second.busy();
    if (drop) --kinds_, snapshot_.reset();
    return drop;
  };
  if (kinds_ >= kMostKeys)
    for (auto& [id, record] : records_) std::erase_if(record.kinds, goes);
  if (kinds_ >= kMostKeys) return nullptr;
  ++kinds_;
  if (is_divided(&kind)) snapshot_.reset();
  return &to.kinds[kind];
}

bool BoardState::open(const Key& key, std::string_view why, Time now) {
  Record* const r = find_or_make(key);
  if (r == nullptr) return false;
  r->whole.open_manually(settings_, now);
  r->whole.why = base::printable(why, kMostText);
  for (auto& [kind, breaker] : r->kinds) breaker.close(now);
  emit(Kind::kOpened, {*r, nullptr, r->whole}, with_reason("manual override", why), now);
  return true;
}

// With `repeats_too`, also forgets that breakers were open.
template <class F>
bool BoardState::close_all(const F& concerns, bool manual_too, bool repeats_too,
                           std::string_view why, Time now) {
  bool changed = false;
  for (auto& [id, record] : records_) {
    if (!concerns(record)) continue;
    if (repeats_too) record.failed.clear();
    for_each(record, [&](const Entry& e) {
      if (repeats_too) e.breaker.repeats = 0;
      if (e.breaker.closed() || (e.breaker.manual && !manual_too))
        return e.breaker.forget_failures();
      close(e, why, now);
      changed = true;
    });
  }
  return changed;
}

bool BoardState::close(const Key& key, Time now, bool forget) {
  return close_all([&](const Record& r) { return r.op == key.op && r.kernel == key.kernel; }, true,
                   forget, "manually", now);
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
  if (std::ranges::find(lost_, device) != lost_.end() || lost_.size() >= kMostDevices) return false;
  lost_.push_back(device);
  std::string text = base::printable(why, kMostText);
  emit({Kind::kDeviceLost, {}, {}, yard::to_string(device), std::move(text), now, {}});
  return true;
}

bool BoardState::device_back(Device device, Time now) {
  if (std::erase(lost_, device) == 0) return false;
  emit({Kind::kDeviceBack, {}, {}, yard::to_string(device), {}, now, {}});
  return true;
}

void BoardState::record_success(std::string_view backend, uint64_t count) {
  const std::string name(backend);
  if (external_.size() < kMostBackends || external_.contains(name))
    external_[name].successes += count;
}

void BoardState::record_failure(std::string_view backend, ErrorClass error_class,
                                std::string_view text, Time now) {
  if (error_class == ErrorClass::kOk) return record_success(backend);
  record_success(backend, 0);  // makes the entry
  if (const auto at = external_.find(backend); at != external_.end())
    count(at->second, error_class, text, now);
}

void BoardState::restart() {
  records_.clear(), kinds_ = 0;
  lost_.clear(), external_.clear();
  totals_ = {}, events_ = {}, snapshot_.reset();
  has_events_.store(false, std::memory_order_release);
}

}  // namespace yard::health
