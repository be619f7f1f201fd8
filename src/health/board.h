// SPDX-License-Identifier: Apache-2.0
// The circuit breakers of a runtime: one for each kernel and kind of call, and one for each kernel as a whole. Failed calls
// are reported here, what is not closed is published as a snapshot, and a maintenance thread advances time.
//
//   if (board->fault(key, error_class, text, now).changed) publish(board->snapshot());   // a call has failed
//
// Calls that succeed are not reported. The first fault of a kind of call publishes the kind as *counting*: calls of that
// kind then have plans of their own, so that the counters of these plans say how many have succeeded when the next one
// fails. Functions have counters of their own. Any thread may use a board.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>

#include "base/mutex.h"
#include "health/health_snapshot.h"

namespace yard::health {

// A failed call, beside its key.
struct FailedOn {
  bool wrong = false;  // the call returned, and its results were found wrong
  uint64_t sizes = 0;  // a hash of its sizes
  // Makes the CallSpec of the call. Called under the lock, only for sizes that have not failed before.
  std::function<std::string()> text{};
  uint64_t successes = 0;        // of calls of this kind so far
  const void* kernel = nullptr;  // that failed: another one of the same id may have replaced it
};

struct BoardUpdate {
  bool changed = false;  // the snapshot has changed
  bool opened = false;   // the breaker was closed, and this failure has opened it
};

// Successes that were counted elsewhere, for a report.
struct Successes {
  std::string op, kernel, backend;
  uint64_t count = 0;
};

// A kernel that has failed, or that was opened manually. The lists of KernelHealth are filled in by reports.
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
  // The texts of calls of a kind, or of all kinds if it is null, separated by commas.
  std::string failed_text(const CallKind* kind) const;
};

inline constexpr size_t kMostKeys = 1024;       // breakers of kinds that are kept
inline constexpr size_t kKeysToOpenKernel = 4;  // open kinds that open the kernel as a whole

// The breakers, for the thread that holds the lock of a Board.
class BoardState {
 public:
  explicit BoardState(const BreakerSettings& settings) : settings_(usable(settings)) {}
  const BreakerSettings& settings() const noexcept { return settings_; }

  // A call has failed. All classes are counted; kFault may open a breaker; kDeviceLost excludes the key's device. A probe
  // must have left its slot before. While the breaker is not closed, other calls change nothing, since they began before.
  BoardUpdate fault(const Key& key, ErrorClass error_class, std::string_view text, Time now,
                    const FailedOn& on = {});
  // Checked results of a call are right.
  void found_right(const Key& key, Time now);

  std::shared_ptr<const HealthSnapshot> snapshot();
  // When advance() has something to do. Empty if nothing is due before another report.
  std::optional<Time> next_change() const;
  // Does what is due: open to half-open, results of probes, new periods. This and the functions below return whether the
  // snapshot has changed.
  bool advance(Time now);

  // Manual operations on a kernel as a whole. Closing also closes the breakers of all kinds of calls, and with `forget`
  // forgets that they were open.
  bool open(const Key& key, std::string_view why, Time now);
  bool close(const Key& key, Time now, bool forget = false);
  // Another version of a backend is in force: closes what was not opened manually, and forgets all failures.
  bool replaced(std::string_view backend, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);
  // Disabling breakers closes those that were not opened manually.
  bool set_settings(const BreakerSettings& settings, Time now);

  // See yard::Health.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                      Time now);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  std::vector<BreakerEvent> take_events();
  // Forgets everything but the settings.
  void restart();

 private:
  friend class Board;
  // A breaker of a kind of call of a kernel, or of the kernel as a whole if `kind` is null.
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
  size_t kinds_ = 0;                                               // of all records
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  HealthReport::Breakers totals_;
  EventQueue events_;
  std::atomic<bool> has_events_{false};
  std::shared_ptr<const HealthSnapshot> snapshot_;  // null if it must be made
};

class Board {
 public:
  explicit Board(const BreakerSettings& settings = {}) : state_(settings) {}

  // Holds the lock. One expression must not use a board twice.
  struct Locked {
    std::unique_lock<base::Mutex> lock;
    BoardState* state;
    BoardState* operator->() const noexcept { return state; }
  };
  Locked operator->() const { return {std::unique_lock(lock_), &state_}; }

  // Whether take_events() would return any. Takes no lock.
  bool has_events() const noexcept { return state_.has_events_.load(std::memory_order_acquire); }

 private:
  mutable base::Mutex lock_{base::Rank::kBoard};
  mutable BoardState state_;
};

}  // namespace yard::health
