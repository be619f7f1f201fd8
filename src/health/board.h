// SPDX-License-Identifier: Apache-2.0
// The circuit breakers of a runtime: one for each kernel and kind of call (Key), and one for each kernel as a whole.
// Failed calls are reported here; what is not closed is published as a snapshot; a maintenance thread advances time.
//
//   if (board->fault(key, error_class, text, now).changed) publish(board->snapshot());   // a call has failed
//   while (auto next = board->next_change()) {
//     sleep_until(*next);
//     if (board->advance(now)) publish(board->snapshot());
//   }
//
// Calls that succeed do not come here. The first fault of a kind of call publishes the kind as *counting*: calls of that
// kind then have plans of their own, so that the counters of these plans say how many have succeeded when the next one
// fails. Functions have counters of their own. Successes are reported only for checked results.
//
// Time is passed in. All functions may be called from any thread; one lock, held briefly, and no callbacks under it but
// FailedOn::text. Memory is bounded: at most kMostKeys breakers of kinds of calls are kept.
//
// A failure counts once, for the kernel that failed, whether or not it ran as a fallback.
#pragma once

#include <yard/health.h>
#include <yard/status.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "health/breaker.h"
#include "health/health_snapshot.h"

namespace yard::health {

// What is known of a failed call beyond its key.
struct FailedOn {
  Evidence evidence = Evidence::kCall;
  uint64_t sizes = 0;  // a hash of its sizes
  // The call as a CallSpec; null: unknown. Called under the lock, only for sizes that have not failed before.
  std::function<std::string()> text{};
  uint64_t successes = 0;  // of calls of this kind so far
  // Identifies the kernel: another one of the same id may have replaced it.
  const void* kernel = nullptr;
};

// The effect of a reported outcome.
struct BoardUpdate {
  bool changed = false;  // the snapshot has changed
  bool opened = false;   // the breaker was closed, and this failure has opened it
};

// Successes that were counted elsewhere, for a report.
struct Successes {
  std::string op, kernel, backend;
  uint64_t count = 0;
};

// A kernel.
struct Record {
  struct Failed {
    uint64_t kind, sizes;  // hashes
    FailedCall call;
  };
  std::string op, kernel, backend;
  const void* identity = nullptr;  // FailedOn::kernel
  HealthCounts counts;
  std::vector<Failed> failed;  // at most kFailedCalls

  void add_failed(const Key& key, const FailedOn& on, Time now);
  // The texts of calls of a kind, or of all kinds, separated by commas.
  std::string failed_text(std::optional<uint64_t> kind) const;
};

// A Key with a record instead of names. Without a kind it stands for the kernel as a whole.
struct BreakerKey {
  Record* record;
  std::optional<CallKind> kind;
  bool operator==(const BreakerKey&) const = default;
};
struct BreakerKeyHash {
  size_t operator()(const BreakerKey& k) const noexcept {
    const uint64_t kind = k.kind ? k.kind->hash() : 0;
    return (reinterpret_cast<uintptr_t>(k.record) ^ kind) * 0x9e3779b97f4a7c15u;
  }
};
using Breakers = std::unordered_map<BreakerKey, Breaker, BreakerKeyHash>;
static_assert(sizeof(Breakers::value_type) <= 128, "a breaker stays within 128 bytes");

// Breakers of kinds of calls that are kept. Closed ones are dropped first.
inline constexpr size_t kMostKeys = 1024;
// The number of a kernel's open keys that opens the kernel as a whole.
inline constexpr size_t kKeysToOpenKernel = 4;

// The breakers, for the thread that holds the lock of a Board.
class BoardState {
 public:
  // Invalid settings are replaced by the defaults.
  explicit BoardState(const BreakerSettings& settings);
  const BreakerSettings& settings() const noexcept { return settings_; }

  // A call that did not succeed. All classes are counted; kFault may open a breaker; kDeviceLost excludes the key's
  // device. A probe must have left its slot before. While the breaker is not closed, results of calls that are no probe
  // change nothing, since they began before.
  BoardUpdate fault(const Key& key, ErrorClass error_class, std::string_view text, Time now,
                    const FailedOn& on = {});
  // The results of a call were checked and are right.
  void found_right(const Key& key, Time now);

  std::shared_ptr<const HealthSnapshot> snapshot();
  // When advance() has something to do; in the past: now. Empty: not before another report.
  std::optional<Time> next_change() const;
  // Does what is due: open to half-open, results of probes, new periods. Whether the snapshot has changed.
  bool advance(Time now);

  // Manual operations on a kernel as a whole; each returns whether the snapshot has changed. Of the key they read op, kernel
  // and backend.
  // It stays open until it is closed manually.
  bool open(const Key& key, std::string_view why, Time now);
  // Closes the breakers of all its keys, too.
  bool close(const Key& key, Time now);
  // Closes, and forgets all failures. Counts in reports stay.
  bool reset(const Key& key, Time now);
  // Another version of a backend is in force: closes what was not opened manually, and forgets all failures.
  bool replaced(std::string_view backend, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  // For decisions from now on. Disabling breakers closes those that were not opened manually.
  bool set_settings(const BreakerSettings& settings, Time now);

  // Outcomes that the program observed of a backend. They count for its failure rate, and open nothing.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                      Time now);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;

  // Oldest first, at most kBreakerEvents.
  std::vector<BreakerEvent> take_events();
  // Forgets everything but the settings.
  void restart();

 private:
  friend class Board;
  HealthCounts* external(std::string_view backend);
  // Closes the breakers of kernels that it `concerns`: forgets their failures, and with `repeats_too` that they were open
  // before.
  template <class F>
  bool close_all(const F& concerns, bool manual_too, bool repeats_too, std::string_view why,
                 Time now);
  Record* find(const Key& key) const;
  Record* find_or_make(const Key& key);
  Breaker* find_or_make(const BreakerKey& key, Time now);
  bool evict(Time now);

  using Entry = Breakers::value_type;
  void open(Entry& entry, std::string text, Time now);
  void open_kernel_if_due(Record& r, Time now);
  void close_kinds(const Record& r, Time now);
  bool apply_probes(Entry& entry, std::string_view why, Time now);
  void close(Entry& entry, std::string_view why, Time now);
  void emit(BreakerEvent::Kind kind, const Entry& entry, std::string text, Time now);
  void emit(BreakerEvent event);

  BreakerSettings settings_;
  std::map<std::string, std::vector<std::unique_ptr<Record>>, std::less<>> records_;  // by op
  size_t record_count_ = 0;
  Breakers breakers_;
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  BreakerTotals totals_;
  EventQueue events_;
  std::shared_ptr<const HealthSnapshot> snapshot_;  // null: to be made

  std::atomic<bool> has_events_{false};
};

// Adds a failure.
void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now);

class Board {
 public:
  explicit Board(const BreakerSettings& settings = {}) : state_(settings) {}

  // The state, locked as long as this exists. One expression must not use a board twice.
  class Locked {
   public:
    Locked(base::Mutex& lock, BoardState& state) : lock_(lock), state_(state) {}
    BoardState* operator->() const noexcept { return &state_; }

   private:
    const std::lock_guard<base::Mutex> lock_;
    BoardState& state_;
  };
  Locked operator->() const { return {lock_, state_}; }

  // Whether take_events() has something. Takes no lock.
  bool has_events() const noexcept { return state_.has_events_.load(std::memory_order_acquire); }

 private:
  mutable base::Mutex lock_{base::Rank::kBoard};
  mutable BoardState state_;
};

}  // namespace yard::health
