// SPDX-License-Identifier: Apache-2.0
// The circuit breakers of a runtime: one for each kernel and kind of call, and one for each kernel
// as a whole. Callers report failed calls, and breakers that are not closed are published as a
// snapshot. A maintenance thread advances the time.
//
//   if (board->fault(key, error_class, text, now).changed)  // a call has failed
//     publish(board->snapshot());
//
// After the first fault of a kind of call, the snapshot lists this kind as *counting*: its calls
// then have plans of their own, whose counters say how many calls have succeeded. Functions have
// separate counters. Any thread may use a board.
#pragma once

#include <unordered_map>

#include "base/mutex.h"
#include "health/health_snapshot.h"

namespace yard::health {

struct FailedOn {
  bool wrong = false;  // the call returned, but its results are wrong
  uint64_t sizes = 0;  // a hash of its sizes
  // Makes the CallSpec of the call. Runs under the lock, only for sizes that are not known yet.
  std::function<std::string()> text{};
  uint64_t successes = 0;        // calls of this kind that have succeeded so far
  const void* kernel = nullptr;  // the failed kernel, since another one may have its id now
};

struct BoardUpdate {
  bool changed = false;  // the snapshot has changed
  bool opened = false;   // the breaker was closed, and this failure has opened it
};

// Successes are counted outside of the board and added to its reports.
struct Successes {
  std::string op, kernel, backend;
  uint64_t count = 0;
};

// Only reports fill in the lists of KernelHealth.
struct Record : KernelHealth {
  struct Failed : FailedCall {
    uint64_t kind, sizes;  // hashes
  };
  struct Hash {
    size_t operator()(const CallKind& k) const noexcept { return k.hash(); }
  };
  const void* identity = nullptr;  // FailedOn::kernel
  std::vector<Failed> failed;      // at most kFailedCalls
  health::Breaker whole;           // of the kernel as a whole
  std::unordered_map<CallKind, health::Breaker, Hash> kinds;

  void add_failed(const CallKind& kind, const FailedOn& on, Time now);
  // Returns the texts of failed calls, separated by commas. A null kind selects all kinds.
  std::string failed_text(const CallKind* kind) const;
};

inline constexpr size_t kMostKeys = 1024;       // most breakers of kinds
inline constexpr size_t kKeysToOpenKernel = 4;  // open kinds that open the kernel as a whole

class BoardState {
 public:
  explicit BoardState(const BreakerSettings& settings) : settings_(usable(settings)) {}
  const BreakerSettings& settings() const noexcept { return settings_; }

  // kFault may open a breaker, and kDeviceLost excludes the key's device. A probe must leave its
  // slot first. While a breaker is not closed, failures of other calls, which began earlier, change
  // nothing.
  BoardUpdate fault(const Key& key, ErrorClass error_class, std::string_view text, Time now,
                    const FailedOn& on = {});
  void found_right(const Key& key, Time now);

  std::shared_ptr<const HealthSnapshot> snapshot();
  // Returns when advance() has something to do, or nothing if only another report can cause that.
  std::optional<Time> next_change() const;
  // Does all work that is due. This and the next functions return whether the snapshot changed.
  bool advance(Time now);

  // These work on a kernel as a whole. close() closes the breakers of all its kinds of calls, too,
  // and with `forget` forgets that they were open.
  bool open(const Key& key, std::string_view why, Time now);
  bool close(const Key& key, Time now, bool forget = false);
  // Closes breakers that were not opened manually, and forgets all failures of the old version.
  bool replaced(std::string_view backend, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);
  // Disabling breakers closes all breakers that were not opened manually.
  bool set_settings(const BreakerSettings& settings, Time now);

  // See yard::Health.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                      Time now);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  std::vector<BreakerEvent> take_events();
  void restart();

 private:
  friend class Board;
  // The breaker of one kind of call, or of the kernel as a whole if `kind` is null.
  struct Entry {
    Record& record;
    const CallKind* kind;
    Breaker& breaker;
  };
  template <class F>
  static void for_each(Record& r, const F& f) {
    f(Entry{r, nullptr, r.whole});
    for (auto& [kind, breaker] : r.kinds) f(Entry{r, &kind, breaker});
  }
  template <class F>
  bool close_all(const F& concerns, bool manual_too, bool repeats_too, std::string_view why,
                 Time now);
  Record* find_or_make(const Key& key);
  Breaker* make(Record& to, const CallKind& kind);
  void open(const Entry& entry, std::string text, Time now);
  void open_kernel_if_due(Record& r, Time now);
  bool apply_probes(const Entry& entry, std::string_view why, Time now);
  void close(const Entry& entry, std::string_view why, Time now);
  void emit(BreakerEvent::Kind kind, const Entry& entry, std::string text, Time now);
  void emit(BreakerEvent event);

  BreakerSettings settings_;
  std::map<std::pair<std::string, std::string>, Record> records_;  // by op and kernel
  size_t kinds_ = 0;                                               // number of kinds in all records
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  HealthReport::Breakers totals_;
  EventQueue events_;
  std::atomic<bool> has_events_{false};
  std::shared_ptr<const HealthSnapshot> snapshot_;  // null if it is outdated
};

class Board {
 public:
  explicit Board(const BreakerSettings& settings = {}) : state_(settings) {}

  // Holds the lock. An expression that uses one board twice deadlocks.
  struct Locked {
    std::unique_lock<base::Mutex> lock;
    BoardState* state;
    BoardState* operator->() const noexcept { return state; }
  };
  Locked operator->() const { return {std::unique_lock(lock_), &state_}; }

  // Takes no lock.
  bool has_events() const noexcept { return state_.has_events_.load(std::memory_order_acquire); }

 private:
  mutable base::Mutex lock_{base::Rank::kBoard};
  mutable BoardState state_;
};

}  // namespace yard::health
