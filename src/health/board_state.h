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
#include "health/breaker.h"

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
  struct Failed {
    uint64_t kind, sizes;  // hashes
    FailedCall call;
  };
  std::string op, kernel, backend;
  Slot slot;  // of the kernel as a whole
  HealthCounts counts;
  std::vector<Failed> failed;  // at most kFailedCalls

  void add_failed(const Key& key, const FailedOn& on, Time now);
  // The texts of calls of a kind, or of all kinds, separated by commas.
  std::string failed_text(std::optional<uint64_t> kind) const;
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
  size_t operator()(const SmallKey& k) const noexcept {
    const uint64_t kind = kind_hash(k.device, k.dtypes, k.sizes);
    return (reinterpret_cast<uintptr_t>(k.record) ^ kind) * 0x9e3779b97f4a7c15u;
  }
};
using Entries = std::unordered_map<SmallKey, Slot, SmallKeyHash>;
static_assert(sizeof(Entries::value_type) <= 112, "a breaker entry stays within 112 bytes");

class BoardState {
 public:
  std::mutex lock;
  std::atomic<bool> has_events{false};
  // In a forked child: the parent's, so that leak checkers find it reachable.
  BoardState* abandoned = nullptr;

  explicit BoardState(const BreakerSettings& settings) : settings_{settings, {}} {}
  // Complete even if a thread that a fork left behind was setting others.
  const BreakerSettings& settings() const noexcept {
    return settings_[in_force_.load(std::memory_order_acquire)];
  }
  bool set_settings(const BreakerSettings& settings, Time now);

  BoardUpdate fault(const Key& key, ErrorClass c, std::string_view text, Time now,
                    const FailedOn& on, Watched watched);
  BoardUpdate success(const Key& key, Time now, bool checked, Watched watched);
  BoardUpdate review(const Key& key, Time now, Watched watched);

  const std::shared_ptr<const HealthSnapshot>& snapshot();
  std::optional<Time> next_change() const;
  bool advance(Time now);

  bool open(const Key& key, Extent extent, std::string_view why, Time now,
            std::optional<std::chrono::nanoseconds> duration);
  bool close(const Key& key, Extent extent, Time now);
  bool reset(const Key& key, Extent extent, Time now);
  bool replaced(std::string_view backend, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  HealthCounts* external(std::string_view backend);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;
  std::vector<BreakerEvent> take_events();

 private:
  // All breakers that were not opened manually; of a backend, if one is named.
  bool close_automatic(std::string_view backend, std::string_view why, Time now);
  Record* find(const Key& key) const;
  Record* find_or_make(const Key& key);
  bool evict_record();
  Slot* find_or_make(const SmallKey& key, Time now);
  bool evict_entry(Time now);

  // Makes the bits of a kernel those of the keys whose failures are counted: none without a record, as in a forked child.
  // Returns what fault() and success() do.
  BoardUpdate update(const Record* r, Time now, Watched watched, bool changed) const;

  // Here and below a null `key` means the kernel as a whole.
  bool try_open(const Record& r, const SmallKey* key, Slot& slot, std::string text, Time now);
  void open_kernel_if_due(Record& r, Time now);
  void close_keys(const Record& r, Time now);
  bool apply_probes(const Record& r, const SmallKey* key, Slot& slot, std::string_view why,
                    Time now);
  bool advance(const Record& r, const SmallKey* key, Slot& slot, Time now);
  void close(const Record& r, const SmallKey* key, Slot& slot, std::string_view why, Time now);
  void emit(BreakerEvent::Kind kind, const Record& r, const SmallKey* key, const Slot& slot,
            std::string text, Time now);
  void emit(BreakerEvent event);

  BreakerSettings settings_[2];
  std::atomic<uint32_t> in_force_{0};
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
