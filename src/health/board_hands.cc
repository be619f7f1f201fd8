// SPDX-License-Identifier: Apache-2.0
// What is done manually, devices, and how memory stays bounded.
#include <algorithm>
#include <unordered_set>

#include "health/board_state.h"

namespace yard::health {

using Kind = BreakerEvent::Kind;

namespace {

// A kernel is remembered for its counts. More than this were never registered at once by anybody.
constexpr size_t kMostRecords = 16'384;
constexpr size_t kMostBackends = 1024, kMostDevices = 1024;

}  // namespace

size_t SmallKeyHash::operator()(const SmallKey& k) const noexcept {
  const auto mix = [](size_t h, size_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29); };
  size_t h = mix(reinterpret_cast<size_t>(k.record), k.dtypes);
  h = mix(h, static_cast<size_t>(k.device.type) << 32 ^ static_cast<uint32_t>(k.device.index));
  for (const uint8_t b : k.sizes.get()) h = mix(h, b + size_t{1});
  return h;
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
    // Another backend may have brought a kernel of the same id since.
    if (r->backend != key.backend && !key.backend.empty()) r->backend = key.backend;
    return r;
  }
  if (record_count_ >= kMostRecords && !make_room_for_record()) return nullptr;
  auto made = std::make_unique<Record>();
  made->op = key.op, made->kernel = key.kernel, made->backend = key.backend;
  ++record_count_;
  return records_[key.op].emplace_back(std::move(made)).get();
}

// Forgets the kernel that failed longest ago, of those that no breaker needs.
bool BoardState::make_room_for_record() {
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

Slot* BoardState::find_or_make(const Settings& s, const SmallKey& key, Time now) {
  if (const auto at = entries_.find(key); at != entries_.end()) return &at->second;
  if (entries_.size() >= s.max_entries && !make_room(s, now)) return nullptr;
  return &entries_[key];
}

// Of the closed keys that go first: those with the fewest repeats, then those whose last fault is longest ago.
bool BoardState::make_room(const Settings& s, Time now) {
  auto victim = entries_.end();
  const auto rank = [&](const Slot& slot) {
    return std::pair(slot.machine.repeats_at(s, now), slot.machine.since);
  };
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (!at->second.closed() || at->second.busy()) continue;
    if (victim == entries_.end() || rank(at->second) < rank(victim->second)) victim = at;
  }
  if (victim == entries_.end()) return false;
  entries_.erase(victim);
  return true;
}

bool BoardState::open(const Settings& s, const Key& key, Extent extent, std::string_view why,
                      Time now, std::optional<std::chrono::nanoseconds> hold) {
  Record* r = find_or_make(key);
  if (r == nullptr) return false;
  const SmallKey k = small(r, key);
  Slot* slot = extent == Extent::kKernel ? &r->slot : find_or_make(s, k, now);
  if (slot == nullptr) return false;
  slot->machine.open_by_hand(s, now, hold);
  slot->shut();
  if (extent == Extent::kKernel) release_keys(*r, now, false);
  tell(Kind::kOpened, *r, extent == Extent::kKernel ? nullptr : &k, *slot,
       why.empty() ? "manually" : "manually: " + cut(why), now);
  return true;
}

bool BoardState::close(const Key& key, Extent extent, Time now) {
  Record* r = find(key);
  if (r == nullptr) return false;
  const SmallKey k = small(r, key);
  bool changed = false;
  const auto close_one = [&](const SmallKey* of, Slot& slot) {
    slot.machine.faults = 0;
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
  if (extent == Extent::kKernel) r->slot.machine.repeats = 0;
  const SmallKey k = small(r, key);
  for (auto& [at, slot] : entries_)
    if (extent == Extent::kKernel ? at.record == r : at == k) slot.machine.repeats = 0;
  return changed;
}

bool BoardState::close_all_but_by_hand(Time now) {
  bool changed = false;
  const auto close_one = [&](const Record& r, const SmallKey* key, Slot& slot) {
    slot.machine.faults = 0;
    if (slot.closed() || slot.machine.by_hand) return;
    close(r, key, slot, "breakers were switched off", now);
    changed = true;
  };
  for (auto& [op, records] : records_)
    for (auto& r : records) close_one(*r, nullptr, r->slot);
  for (auto& [key, slot] : entries_) close_one(*key.record, &key, slot);
  return changed;
}

bool BoardState::device_lost(Device device, std::string_view why, Time now) {
  if (std::find(lost_.begin(), lost_.end(), device) != lost_.end()) return false;
  if (lost_.size() >= kMostDevices) return false;
  lost_.push_back(device);
  view_.reset();
  tell({Kind::kDeviceLost, {}, {}, yard::to_string(device), cut(why), now, {}});
  return true;
}

bool BoardState::device_back(Device device, Time now) {
  if (std::erase(lost_, device) == 0) return false;
  view_.reset();
  tell({Kind::kDeviceBack, {}, {}, yard::to_string(device), {}, now, {}});
  return true;
}

HealthCounts* BoardState::external(std::string_view backend) {
  const auto at = external_.find(backend);
  if (at != external_.end()) return &at->second;
  if (external_.size() >= kMostBackends) return nullptr;
  return &external_[std::string(backend)];
}

}  // namespace yard::health
