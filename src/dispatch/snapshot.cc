// SPDX-License-Identifier: Apache-2.0
#include "dispatch/snapshot.h"

namespace yard::dispatch {

std::shared_ptr<Snapshot> Snapshot::make() {
  const auto retire = [](Snapshot* s) {
    base::reclaimer().retire(s, [](void* p) { delete static_cast<Snapshot*>(p); }, {s});
  };
  return std::shared_ptr<Snapshot>(new Snapshot, retire);
}

void Snapshot::set_entries(std::vector<std::shared_ptr<Entry>> owners) {
  owners_ = std::move(owners);
  raw_.clear();
  for (const auto& e : owners_) raw_.push_back(e.get());
  entries = raw_.data();
  entry_count = static_cast<uint32_t>(raw_.size());
}

const Entry* Snapshot::overlay(uint32_t index, const OverlayKey& key) const noexcept {
  const uint32_t first = place(index, key.hash);
  for (uint32_t i = 0; i < kProbe; ++i) {
    const Entry* e = overlays_[(first + i) % kOverlays].load(base::kFollow);
    if (e != nullptr && e->overlay_key == key && e->candidates().op_record().op->index == index)
      return e;
  }
  return nullptr;
}

std::shared_ptr<Entry> Snapshot::put_overlay(uint32_t index, std::shared_ptr<Entry> entry) const {
  if (overlay(index, entry->overlay_key) != nullptr) return nullptr;
  const uint32_t first = place(index, entry->overlay_key.hash);
  uint32_t at = (first + next_victim_++ % kProbe) % kOverlays;
  for (uint32_t i = 0; i < kProbe; ++i)
    if (overlay_owners_[(first + i) % kOverlays] == nullptr) {
      at = (first + i) % kOverlays;
      break;
    }
  const Entry* raw = entry.get();
  std::shared_ptr<Entry> old = std::exchange(overlay_owners_[at], std::move(entry));
  overlays_[at].store(raw, std::memory_order_release);
  return old;
}

bool Snapshot::being_edited() const noexcept {
  for (const Entry* e : raw_)
    if (e != nullptr && e->being_edited()) return true;
  for (const auto& o : overlays_) {
    const Entry* e = o.load(std::memory_order_relaxed);
    if (e != nullptr && e->being_edited()) return true;
  }
  return false;
}

std::vector<std::shared_ptr<const Entry>> Snapshot::overlays() const {
  std::vector<std::shared_ptr<const Entry>> all;
  for (const auto& owner : overlay_owners_)
    if (owner != nullptr) all.push_back(owner);
  return all;
}

size_t Snapshot::overlay_count() const noexcept {
  size_t n = 0;
  for (const auto& o : overlays_) n += o.load(std::memory_order_relaxed) != nullptr;
  return n;
}

}  // namespace yard::dispatch
