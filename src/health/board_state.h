// SPDX-License-Identifier: Apache-2.0
// What the board knows, and the steps it takes: Board holds the lock around every function here.
#pragma once

#include <yard/health.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "health/board.h"
#include "health/events.h"
#include "health/machine.h"
#include "health/probe_slots.h"

namespace yard::health {

// A breaker and the way into it, which is made when first needed.
struct Slot {
  Machine machine;
  std::shared_ptr<ProbeSlots> probes;

  bool closed() const { return machine.state == BreakerState::kClosed; }
  bool busy() const { return probes != nullptr && probes->busy(); }
  void shut() const {
    if (probes != nullptr) probes->shut();
  }
};

// A kernel: what its keys have in common.
struct Record {
  std::string op, kernel, backend;
  Slot slot;  // of the kernel as a whole
  HealthCounts counts;
};

// A Key whose names are those of a record.
struct SmallKey {
  Record* record;
  uint64_t dtypes;
  Device device;
  Buckets sizes;
  bool operator==(const SmallKey&) const = default;
};
inline SmallKey small(Record* r, const Key& key) { return {r, key.dtypes, key.device, key.sizes}; }
struct SmallKeyHash {
  size_t operator()(const SmallKey& k) const noexcept;
};
using Entries = std::unordered_map<SmallKey, Slot, SmallKeyHash>;
static_assert(sizeof(Entries::value_type) <= 80, "DESIGN: a breaker entry has 80 bytes");

class BoardState {
 public:
  std::mutex lock;
  std::atomic<bool> has_events{false};
  // In a forked child: the parent's, so that it stays reachable.
  BoardState* left_behind = nullptr;

  using Settings = BreakerSettings;
  Told fault(const Settings& s, const Key& key, ErrorClass c, std::string_view text, Time now);
  Told success(const Settings& s, const Key& key, Time now);
  uint64_t rows(const Record& r) const;

  const std::shared_ptr<const HealthSnapshot>& view();
  std::optional<Time> next_change() const;
  bool advance(const Settings& s, Time now);

  bool open(const Settings& s, const Key& key, Extent extent, std::string_view why, Time now,
            std::optional<std::chrono::nanoseconds> hold);
  bool close(const Key& key, Extent extent, Time now);
  bool reset(const Key& key, Extent extent, Time now);
  bool close_all_but_by_hand(Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  HealthCounts* external(std::string_view backend);
  HealthReport report(const Settings& s, std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;
  std::vector<BreakerEvent> take_events();

 private:
  Record* find(const Key& key) const;
  Record* find_or_make(const Key& key);
  bool make_room_for_record();
  Slot* find_or_make(const Settings& s, const SmallKey& key, Time now);
  bool make_room(const Settings& s, Time now);

  bool would_open(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                  std::string text, Time now);
  void open_kernel_if_due(const Settings& s, Record& r, Time now);
  void release_keys(const Record& r, Time now, bool also_by_hand);
  bool settle(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
              std::string_view why, Time now);
  bool move(const Settings& s, const Record& r, const SmallKey* key, Slot& slot, Time now);
  void close(const Record& r, const SmallKey* key, Slot& slot, std::string_view why, Time now);
  // `key` null: of the whole kernel.
  void tell(BreakerEvent::Kind kind, const Record& r, const SmallKey* key, const Slot& slot,
            std::string text, Time now);
  void tell(BreakerEvent event);

  std::map<std::string, std::vector<std::unique_ptr<Record>>, std::less<>> records_;  // by op
  size_t record_count_ = 0;
  Entries entries_;
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  DryRun dry_run_;
  BreakerTotals totals_;
  EventQueue events_;
  std::shared_ptr<const HealthSnapshot> view_;  // null: another one is due
};

// Adds a failure.
void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now);

}  // namespace yard::health
