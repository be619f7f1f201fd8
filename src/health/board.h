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
// Not on the path of a call that succeeds, except for kernels that are half-open and for suspects (Suspects).
// Time is passed in. All functions may be called from any thread; one lock, held briefly, and no callbacks under it but
// FailedOn::text.
// Memory is bounded: at most kMostKeys breakers of kinds of calls are kept.
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

#include "health/breaker.h"
#include "health/health_snapshot.h"

namespace yard::health {

// Which successes of a kernel must be reported: one bit for each kind of call (CallKind::bit) whose failures are being
// counted. Kinds share bits, so some are reported in vain. The board writes them under its lock; calls read them.
struct Suspects {
  std::atomic<uint64_t>* calls = nullptr;    // any success
  std::atomic<uint64_t>* results = nullptr;  // successes whose results were checked
};

// What is known of a failed call beyond its key.
struct FailedOn {
  Evidence evidence = Evidence::kCall;
  uint64_t sizes = 0;  // a hash of its sizes
  // The call as a CallSpec; null: unknown. Called under the lock, only for sizes that have not failed before.
  std::function<std::string()> text;
};

// The effect of a reported outcome.
struct BoardUpdate {
  bool changed = false;         // the snapshot has changed
  bool suspect = false;         // failures of the key are being counted: report its next success
  bool opened = false;          // the breaker was closed, and this failure has opened it
  bool direct_changed = false;  // `Suspects::calls` has become zero, or is no longer
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
  Breaker breaker;  // of the kernel as a whole
  HealthCounts counts;
  std::vector<Failed> failed;  // at most kFailedCalls

  void add_failed(const Key& key, const FailedOn& on, Time now);
  // The texts of calls of a kind, or of all kinds, separated by commas.
  std::string failed_text(std::optional<uint64_t> kind) const;
};

// A Key with a record instead of names.
struct SmallKey {
  Record* record;
  CallKind kind;
  bool operator==(const SmallKey&) const = default;
};
struct SmallKeyHash {
  size_t operator()(const SmallKey& k) const noexcept {
    return (reinterpret_cast<uintptr_t>(k.record) ^ k.kind.hash()) * 0x9e3779b97f4a7c15u;
  }
};
using KeyBreakers = std::unordered_map<SmallKey, Breaker, SmallKeyHash>;
static_assert(sizeof(KeyBreakers::value_type) <= 112, "a key's breaker stays within 112 bytes");

// Breakers of kinds of calls that are kept. Closed ones are dropped first.
inline constexpr size_t kMostKeys = 1024;
// The number of a kernel's open keys that opens the kernel as a whole.
inline constexpr size_t kKeysToOpenKernel = 4;

// The breakers, for the thread that holds the lock of a Board.
class BoardState {
 public:
  explicit BoardState(const BreakerSettings& settings) : settings_{settings, {}} {}
  // Complete even if a thread that a fork left behind was setting others.
  const BreakerSettings& settings() const noexcept {
    return settings_[in_force_.load(std::memory_order_acquire)];
  }

  // A call that did not succeed. All classes are counted; kFault may open a breaker; kDeviceLost excludes the key's
  // device. A probe must have left its slot before. While the breaker is not closed, results of calls that are no probe
  // change nothing, since they began before.
  BoardUpdate fault(const Key& key, ErrorClass error_class, std::string_view text, Time now,
                    const FailedOn& on = {}, Suspects suspects = {});
  // Ends consecutive faults: those of calls, and those of results if they were checked. Not counted in reports.
  BoardUpdate success(const Key& key, Time now, bool checked = false, Suspects suspects = {});
  // Clears bits of the key's kernel that no longer need to be set: time has passed, or failures were forgotten.
  BoardUpdate review(const Key& key, Time now, Suspects suspects);

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
  bool evict_record();
  Breaker* find_or_make(const SmallKey& key, Time now);
  bool evict_key(Time now);

  // Makes the bits of a kernel those of the keys whose failures are counted: none without a record, as in a forked child.
  // Returns what fault() and success() do.
  BoardUpdate update(const Record* r, Time now, Suspects suspects, bool changed) const;

  // Here and below a null `key` means the kernel as a whole.
  // Calls f(record, key, breaker) for all breakers.
  template <class Self, class F>
  static void for_each(Self& self, const F& f);
  void open(const Record& r, const SmallKey* key, Breaker& breaker, std::string text, Time now);
  void open_kernel_if_due(Record& r, Time now);
  void close_keys(const Record& r, Time now);
  bool apply_probes(const Record& r, const SmallKey* key, Breaker& breaker, std::string_view why,
                    Time now);
  void close(const Record& r, const SmallKey* key, Breaker& breaker, std::string_view why,
             Time now);
  void emit(BreakerEvent::Kind kind, const Record& r, const SmallKey* key, const Breaker& breaker,
            std::string text, Time now);
  void emit(BreakerEvent event);

  BreakerSettings settings_[2];
  std::atomic<uint32_t> in_force_{0};
  std::map<std::string, std::vector<std::unique_ptr<Record>>, std::less<>> records_;  // by op
  size_t record_count_ = 0;
  KeyBreakers keys_;
  std::vector<Device> lost_;
  std::map<std::string, HealthCounts, std::less<>> external_;  // by backend
  BreakerTotals totals_;
  EventQueue events_;
  std::shared_ptr<const HealthSnapshot> snapshot_;  // null: to be made

  std::recursive_mutex lock_;  // recursive: an expression may use a board twice
  std::atomic<bool> has_events_{false};
  // In a forked child: the parent's, so that leak checkers find it reachable.
  BoardState* abandoned_ = nullptr;
};

// Adds a failure.
void count(HealthCounts& to, ErrorClass c, std::string_view text, Time now);

class Board {
 public:
  // Invalid settings are replaced by the defaults.
  explicit Board(const BreakerSettings& settings = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // The state, locked as long as this exists.
  class Locked {
   public:
    explicit Locked(BoardState* state) : state_(state), lock_(state->lock_) {}
    BoardState* operator->() const noexcept { return state_; }

   private:
    BoardState* state_;
    std::lock_guard<std::recursive_mutex> lock_;
  };
  Locked operator->() const { return Locked(state_.load(std::memory_order_acquire)); }

  // Whether take_events() has something. Takes no lock.
  bool has_events() const noexcept {
    return state_.load(std::memory_order_acquire)->has_events_.load(std::memory_order_acquire);
  }

  // In a forked child, from its handler: breakers, counts and events restart under a new lock; settings stay. The old
  // state is leaked: a thread that does not exist here may have been changing it.
  void abandon() noexcept;

 private:
  std::atomic<BoardState*> state_;
};

}  // namespace yard::health
