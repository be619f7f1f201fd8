// SPDX-License-Identifier: Apache-2.0
// Outcomes, time, and the view.
#include "health/board_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::health {

using Kind = BreakerEvent::Kind;

namespace {

Key whole(const Record& r) { return {r.op, r.kernel, r.backend, {}, 0, {}}; }
Key full(const SmallKey& k) {
  return {k.record->op, k.record->kernel, k.record->backend, k.device, k.dtypes, k.sizes};
}

}  // namespace

void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now) {
  // Classes come from programs, too, and an enum holds any number.
  const auto index = static_cast<size_t>(c);
  const bool known = index < to.failures.by_class.size();
  ++to.failures.by_class[known ? index : static_cast<size_t>(ErrorClass::kFault)];
  to.last_error = cut(text);
  to.last_error_at = now;
}

Told BoardState::fault(const Settings& s, const Key& key, ErrorClass c, std::string_view text,
                       Time now) {
  if (c == ErrorClass::kOk) return success(s, key, now);
  Record* r = find_or_make(key);
  if (r == nullptr) {
    ++totals_.untracked;
    return {};
  }
  count(r->counts, c, text, now);
  if (c == ErrorClass::kDeviceLost) return {device_lost(key.device, text, now), false};
  const SmallKey k = small(r, key);
  if (c != ErrorClass::kFault) {
    const auto at = entries_.find(k);
    return {false, at != entries_.end() && at->second.machine.faults > 0};
  }
  if (!r->slot.closed()) return {settle(s, *r, nullptr, r->slot, text, now), false};
  if (const auto at = entries_.find(k); at != entries_.end() && !at->second.closed())
    return {settle(s, *r, &k, at->second, text, now), false};
  if (!s.enabled) return {};
  Slot* slot = find_or_make(s, k, now);
  if (slot == nullptr) {
    ++totals_.untracked;
    return {};
  }
  if (!slot->machine.fault(s, now)) return {false, true};
  if (!would_open(s, *r, &k, *slot, after_failures(slot->machine.faults, text), now)) return {};
  open_kernel_if_due(s, *r, now);
  return {true, false, rows(*r)};
}

Told BoardState::success(const Settings& s, const Key& key, Time now) {
  Record* r = find(key);
  if (r == nullptr) return {};
  const auto at = entries_.find(small(r, key));
  // Late successes do not close a breaker; those of probes come through its probe slots.
  if (at != entries_.end() && at->second.closed()) {
    at->second.machine.faults = 0;
    if (at->second.machine.blank(s, now) && !at->second.busy()) entries_.erase(at);
  }
  return {false, false, rows(*r)};
}

uint64_t BoardState::rows(const Record& r) const {
  uint64_t to = 0;
  for (const auto& [key, slot] : entries_)
    if (key.record == &r && slot.closed() && slot.machine.faults > 0)
      to |= kind_bit(key.device, key.dtypes, key.sizes);
  return to;
}

// Enough faults. Opens the breaker and says true, or only says so.
bool BoardState::would_open(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                            std::string text, Time now) {
  if (dry_run_.only_report(s.dry_run)) {
    slot.machine.faults = 0;
    ++totals_.would_open;
    tell(Kind::kWouldOpen, r, key, slot, std::move(text), now);
    return false;
  }
  slot.machine.open(s, now);
  slot.shut();
  tell(Kind::kOpened, r, key, slot, std::move(text), now);
  return true;
}

void BoardState::open_kernel_if_due(const Settings& s, Record& r, Time now) {
  const auto open = std::count_if(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e.first.record == &r && !e.second.closed();
  });
  if (static_cast<uint64_t>(open) < s.open_keys_to_open_kernel || !r.slot.closed()) return;
  std::string text = fmt::format("{} kinds of calls are open", open);
  if (would_open(s, r, nullptr, r.slot, std::move(text), now)) release_keys(r, now, false);
}

// Keys of a kernel that is judged as a whole: closed, but their repeats are not forgotten.
void BoardState::release_keys(const Record& r, Time now, bool also_by_hand) {
  for (auto& [key, slot] : entries_) {
    if (key.record != &r || (slot.machine.by_hand && !also_by_hand)) continue;
    slot.machine.close(now);
    slot.shut();
  }
}

// Acts on what probes have decided.
bool BoardState::settle(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                        std::string_view why, Time now) {
  if (slot.machine.state != BreakerState::kHalfOpen) return false;
  switch (slot.probes->result()) {
    case ProbeSlots::Result::kNone: return false;
    case ProbeSlots::Result::kClose: close(r, key, slot, "probes succeeded", now); return true;
    case ProbeSlots::Result::kReopen:
      slot.machine.open(s, now);
      slot.shut();
      tell(Kind::kOpened, r, key, slot, after_probe(why), now);
      return true;
  }
  return false;
}

void BoardState::close(const Record& r, const SmallKey* key, Slot& slot, std::string_view why,
                       Time now) {
  slot.machine.close(now);
  slot.shut();
  tell(Kind::kClosed, r, key, slot, std::string(why), now);
}

// One breaker, moved to `now`. Whether the view is another one.
bool BoardState::move(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                      Time now) {
  if (slot.closed()) return false;
  if (settle(s, r, key, slot, r.counts.last_error, now)) return true;
  if (slot.machine.until == kManual || now < slot.machine.until) return false;
  const bool was_open = slot.machine.state == BreakerState::kOpen;
  slot.machine.begin_period(s, now);
  if (!was_open) {
    slot.probes->refill(s.half_open_max_calls);
    return false;
  }
  if (slot.probes == nullptr) slot.probes = std::make_shared<ProbeSlots>();
  slot.probes->begin(s.half_open_max_calls, s.success_threshold);
  tell(Kind::kHalfOpen, r, key, slot, {}, now);
  return true;
}

bool BoardState::advance(const Settings& s, Time now) {
  bool changed = false;
  for (auto& [op, records] : records_)
    for (auto& r : records) changed |= move(s, *r, nullptr, r->slot, now);
  for (auto& [key, slot] : entries_) changed |= move(s, *key.record, &key, slot, now);
  std::erase_if(entries_,
                [&](const auto& e) { return e.second.machine.blank(s, now) && !e.second.busy(); });
  if (changed) view_.reset();
  return changed;
}

std::optional<Time> BoardState::next_change() const {
  std::optional<Time> next;
  const auto look = [&](const Slot& slot) {
    if (slot.closed() || slot.machine.until == kManual) return;
    const bool decided = slot.machine.state == BreakerState::kHalfOpen &&
                         slot.probes->result() != ProbeSlots::Result::kNone;
    const Time due = decided ? Time::min() : slot.machine.until;
    if (!next || due < *next) next = due;
  };
  for (const auto& [op, records] : records_)
    for (const auto& r : records) look(r->slot);
  for (const auto& [key, slot] : entries_) look(slot);
  return next;
}

const std::shared_ptr<const HealthSnapshot>& BoardState::view() {
  if (view_ != nullptr) return view_;
  auto made = std::make_shared<HealthSnapshot>();
  const auto held = [](const Slot& slot, Key key) {
    const bool open = slot.machine.state == BreakerState::kOpen;
    return BreakerStatus{std::move(key), slot.machine.state, open ? slot.machine.until : Time{},
                         open ? nullptr : slot.probes};
  };
  for (const auto& [op, records] : records_)
    for (const auto& r : records)
      if (!r->slot.closed()) made->ops_[op].kernels.push_back(held(r->slot, whole(*r)));
  for (const auto& [key, slot] : entries_)
    if (!slot.closed()) made->ops_[key.record->op].keys.push_back(held(slot, full(key)));
  made->lost_ = lost_;
  return view_ = std::move(made);
}

void BoardState::tell(Kind kind, const Record& r, const SmallKey* key, const Slot& slot,
                      std::string text, Time now) {
  view_.reset();
  switch (kind) {
    case Kind::kOpened: ++totals_.opened; break;
    case Kind::kHalfOpen: ++totals_.half_opened; break;
    case Kind::kClosed: ++totals_.closed; break;
    default: break;
  }
  tell({kind, r.op, r.kernel, key != nullptr ? to_string(full(*key)) : r.op + " " + r.kernel,
        std::move(text), now, kind == Kind::kOpened ? slot.machine.until : Time{}});
}

void BoardState::tell(BreakerEvent event) {
  events_.add(std::move(event));
  has_events.store(true, std::memory_order_release);
}

}  // namespace yard::health
