// SPDX-License-Identifier: Apache-2.0
// A snapshot: everything a call can see, at one moment. Published by one pointer store.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <yard/policy.h>
#include "dispatch/entry.h"
#include "policy/process.h"
#include "registry/changes.h"

namespace yard::dispatch {

class Snapshot : public std::enable_shared_from_this<Snapshot> {
 public:
  static std::shared_ptr<Snapshot> make();

  // By op index; null where the op is gone. A call site may know an index that is younger than the
  // snapshot.
  const Entry* entry(uint32_t index) const noexcept {
    return index < entry_count ? entries[index] : nullptr;
  }

  // The entry of an op under a policy override; null if it is not there (yet, or any more).
  const Entry* overlay(uint32_t index, const OverlayKey& key) const noexcept;
  // Under the plan lock. May take the place of another one, which is given back.
  std::shared_ptr<Entry> put_overlay(uint32_t index, std::shared_ptr<Entry> entry) const;
  size_t overlay_count() const noexcept;
  // Those there are. Under the plan lock.
  std::vector<std::shared_ptr<const Entry>> overlays() const;
  // Whether some entry's plan table is being changed: only of interest in a forked child.
  bool being_edited() const noexcept;

  uint64_t generation = 0;
  const Entry** entries = nullptr;  // into owners_
  uint32_t entry_count = 0;
  std::shared_ptr<const registry::State> state;
  std::shared_ptr<const policy::ProcessPolicy> policy;
  std::shared_ptr<const health::HealthSnapshot> health;  // null: as if empty
  bool forked = false;

  void set_entries(std::vector<std::shared_ptr<Entry>> owners);
  const std::vector<std::shared_ptr<Entry>>& owners() const noexcept { return owners_; }

 private:
  Snapshot() = default;
  std::vector<std::shared_ptr<Entry>> owners_;
  std::vector<const Entry*> raw_;

  // Bounded: beyond its size the table forgets. Readers follow one pointer.
  static constexpr uint32_t kOverlays = 256;
  static constexpr uint32_t kProbe = 8;
  static uint32_t place(uint32_t index, uint64_t hash) noexcept {
    return static_cast<uint32_t>((hash ^ (index * 0x9e3779b97f4a7c15ull)) >> 20);
  }
  mutable std::array<std::atomic<const Entry*>, kOverlays> overlays_{};
  mutable std::array<std::shared_ptr<Entry>, kOverlays> overlay_owners_;
  mutable uint32_t next_victim_ = 0;
};

}  // namespace yard::dispatch
