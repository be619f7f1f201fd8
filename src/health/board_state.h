// SPDX-License-Identifier: Apache-2.0
// The state of a Board, which holds `lock` around every function here.
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
#include "health/machine.h"
#include "health/probe_slots.h"

namespace yard::health {

// A breaker and its probe slots, which are made when first needed.
struct Slot {
  Machine machine;
  std::shared_ptr<ProbeSlots> probes;

  bool closed() const { return machine.state == BreakerState::kClosed; }
  bool busy() const { return probes != nullptr && probes->busy(); }
  void end_probes() const {
    if (probes != nullptr) probes->end();
  }
};

// A kernel.
struct Record {
  std::string op, kernel, backend;
  Slot slot;  // of the kernel as a whole
  HealthCounts counts;
};

// A Key with a record instead of names.
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
static_assert(sizeof(Entries::value_type) <= 80, "a breaker entry stays within 80 bytes");

class BoardState {
 public:
  std::mutex lock;
  std::atomic<bool> has_events{false};
  // In a forked child: the parent's, so that leak checkers find it reachable.
  BoardState* abandoned = nullptr;

  using Settings = BreakerSettings;
  BoardUpdate fault(const Settings& s, const Key& key, ErrorClass c, std::string_view text,
                    Time now);
  BoardUpdate success(const Settings& s, const Key& key, Time now);
  uint64_t failing(const Record& r) const;

  const std::shared_ptr<const HealthSnapshot>& snapshot();
  std::optional<Time> next_change() const;
  bool advance(const Settings& s, Time now);

  bool open(const Settings& s, const Key& key, Extent extent, std::string_view why, Time now,
            std::optional<std::chrono::nanoseconds> duration);
  bool close(const Key& key, Extent extent, Time now);
  bool reset(const Key& key, Extent extent, Time now);
  // All breakers that were not opened manually.
  bool close_automatic(Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  HealthCounts* external(std::string_view backend);
  HealthReport report(const Settings& s, std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;
  std::vector<BreakerEvent> take_events();

 private:
  Record* find(const Key& key) const;
  Record* find_or_make(const Key& key);
  bool evict_record();
  Slot* find_or_make(const Settings& s, const SmallKey& key, Time now);
  bool evict_entry(const Settings& s, Time now);

  // Here and below a null `key` means the kernel as a whole.
  bool try_open(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                std::string text, Time now);
  void open_kernel_if_due(const Settings& s, Record& r, Time now);
  void close_keys(const Record& r, Time now);
  bool apply_probes(const Settings& s, const Record& r, const SmallKey* key, Slot& slot,
                    std::string_view why, Time now);
  bool advance(const Settings& s, const Record& r, const SmallKey* key, Slot& slot, Time now);
  void close(const Record& r, const SmallKey* key, Slot& slot, std::string_view why, Time now);
  void emit(BreakerEvent::Kind kind, const Record& r, const SmallKey* key, const Slot& slot,
            std::string text, Time now);
  void emit(BreakerEvent event);

  std::map<std::string, std::vector<std::unique_ptr<Record>>, std::less<>> records_;  // by op
  size_t record_count_ = 0;
  Entries entries_;
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  DryRun dry_run_;
  BreakerTotals totals_;
  EventQueue events_;
  std::shared_ptr<const HealthSnapshot> snapshot_;  // null: to be made
};

// Adds a failure.
void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now);

}  // namespace yard::health
