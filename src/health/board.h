// SPDX-License-Identifier: Apache-2.0
// The circuit breakers of a runtime: one for each kernel and kind of call (Key), and one for each kernel as a whole.
// Failed calls are reported here; what is not closed is published as a snapshot; a maintenance thread advances time.
//
//   if (board.fault(key, error_class, text, now)) publish(board.snapshot());        // a call has failed
//   while (auto next = board.next_change()) {
//     sleep_until(*next);
//     if (board.advance(now)) publish(board.snapshot());
//   }
//
// Not on the path of a call that succeeds, except for kernels that are half-open and for watched keys (Watched).
// Time is passed in. All functions may be called from any thread; one lock, held briefly, and no callbacks under it.
// Memory is bounded by BreakerSettings::max_entries.
//
// A failure counts once, for the kernel that failed, whether or not it ran as a fallback.
#pragma once

#include <yard/health.h>
#include <yard/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "health/health_snapshot.h"

namespace yard::health {

// Which successes of a kernel must be reported: one bit for each kind of call (kind_bit) whose failures are being
// counted. Kinds share bits, so some are reported in vain. The board writes them under its lock; calls read them.
struct Watched {
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
  bool changed = false;  // the snapshot has changed
  bool watched =
      false;  // failures of the key are being counted: report its next success by success()
  bool opened = false;          // the breaker was closed, and this failure has opened it
  bool direct_changed = false;  // `Watched::calls` has become zero, or is no longer
  operator bool() const noexcept { return changed; }  // NOLINT: implicit on purpose
};

// What a manual operation applies to. For kKernel only op, kernel and backend of the key are read.
enum class Extent : uint8_t { kKey, kKernel };

// Successes that were counted elsewhere, for a report.
struct Successes {
  std::string op, kernel, backend;
  uint64_t count = 0;
};

class BoardState;

class Board {
 public:
  // Invalid settings are replaced by the defaults.
  explicit Board(const BreakerSettings& settings = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // A call that did not succeed. All classes are counted; kFault may open a breaker; kDeviceLost excludes the key's
  // device. A probe must have left its slot before. While the breaker is not closed, results of calls that are no probe
  // change nothing, since they began before.
  BoardUpdate fault(const Key& key, ErrorClass error_class, std::string_view text, Time now,
                    const FailedOn& on = {}, Watched watched = {});
  // Ends consecutive faults: those of calls, and those of results if they were checked. Not counted in reports.
  BoardUpdate success(const Key& key, Time now, bool checked = false, Watched watched = {});
  // Clears bits of the key's kernel that no longer need to be set: time has passed, or failures were forgotten.
  BoardUpdate review(const Key& key, Time now, Watched watched);

  std::shared_ptr<const HealthSnapshot> snapshot() const;
  // When advance() has something to do; in the past: now. Empty: not before another report.
  std::optional<Time> next_change() const;
  // Does what is due: open to half-open, results of probes, new periods. Whether the snapshot has changed.
  bool advance(Time now);

  // Manual operations; each returns whether the snapshot has changed.
  // Without `duration` the breaker stays open until it is closed manually.
  bool open(const Key& key, Extent extent, std::string_view why, Time now,
            std::optional<std::chrono::nanoseconds> duration = {});
  // For kKernel the breakers of all its keys, too.
  bool close(const Key& key, Extent extent, Time now);
  // Closes, and forgets all failures. Counts in reports stay.
  bool reset(const Key& key, Extent extent, Time now);
  // Another version of a backend is in force: closes what was not opened manually, and forgets all failures.
  bool replaced(std::string_view backend, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  // For decisions from now on. Disabling breakers closes those that were not opened manually.
  bool set_settings(const BreakerSettings& settings, Time now);
  BreakerSettings settings() const;

  // Outcomes that the program observed of a backend. They count for its failure rate, and open nothing.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                      Time now);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;

  // Whether take_events() has something. Takes no lock.
  bool has_events() const noexcept;
  // Oldest first, at most kBreakerEvents.
  std::vector<BreakerEvent> take_events();

  // In a forked child, from its handler: breakers, counts and events restart under a new lock; settings stay. The old
  // state is leaked: a thread that does not exist here may have been changing it.
  void abandon() noexcept;

 private:
  std::atomic<BoardState*> state_;
};

}  // namespace yard::health
