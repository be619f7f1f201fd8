// SPDX-License-Identifier: Apache-2.0
// The board: the health of every kernel of a runtime. Calls that fail report here; what must not run for a while is
// published as a view; a maintenance thread moves what time moves.
//
//   if (board.fault(key, error_class, text, now)) publish(board.view());        // a call has failed
//   while (auto next = board.next_change()) { sleep_until(*next); if (board.advance(now)) publish(board.view()); }
//
// Never on the way of a call that succeeds, but for kernels that a view holds half-open and for keys that are watched
// (see Told). Time is passed in. Any thread may call anything; one lock, held shortly, and no code of others runs
// under it. Memory is bounded by BreakerSettings::max_entries.
//
// Failures are counted once, at the kernel that failed: that it was a fallback changes nothing.
#pragma once

#include <yard/health.h>
#include <yard/status.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "health/health_snapshot.h"
#include "health/key.h"

namespace yard::health {

// What a report came to.
struct Told {
  bool changed = false;  // the view is another one now
  // Faults of this key stand in a row: its next success should be told by success(). Others need not be.
  bool watched = false;
  // Where a row has ended: the kinds of calls of that kernel, each by its kind_bit(), of which faults stand in a row.
  uint64_t rows = 0;
  operator bool() const noexcept { return changed; }  // NOLINT: implicit on purpose
};

// What a hand is laid on. Of the key only op, kernel and backend are read for kKernel.
enum class Extent : uint8_t { kKey, kKernel };

// Successes that were counted elsewhere, for a report.
struct Successes {
  std::string op, kernel, backend;
  uint64_t count = 0;
};

class BoardState;

class Board {
 public:
  // Settings that validate() refuses are replaced by the defaults.
  explicit Board(const BreakerSettings& settings = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // ---- Outcomes ----

  // A call that did not succeed, of any class: all are counted, kFault may open a breaker, kDeviceLost takes the
  // key's device out. A probe must have left its slot before. Results of calls that are no probe change
  // nothing while the breaker is not closed: they began before.
  Told fault(const Key& key, ErrorClass error_class, std::string_view text, Time now);
  // Ends a row of faults. Not counted in reports.
  Told success(const Key& key, Time now);

  // ---- The view ----

  std::shared_ptr<const HealthSnapshot> view() const;
  // When advance() has something to do next; in the past: now. Nothing: not before another report.
  std::optional<Time> next_change() const;
  // Does what is due: open to half-open, probes that decided, new periods. Whether the view is another one.
  bool advance(Time now);

  // ---- Manually; each says whether the view is another one ----

  // Without `hold` it stays open until somebody closes it.
  bool open(const Key& key, Extent extent, std::string_view why, Time now,
            std::optional<std::chrono::nanoseconds> hold = {});
  // With kKernel its keys, too.
  bool close(const Key& key, Extent extent, Time now);
  // As if it had never failed. Counts of reports stay.
  bool reset(const Key& key, Extent extent, Time now);
  bool device_lost(Device device, std::string_view why, Time now);
  bool device_back(Device device, Time now);

  // For decisions from now on. Switching breakers off closes those that no hand opened.
  bool set_settings(const BreakerSettings& settings, Time now);
  BreakerSettings settings() const;

  // ---- Reports ----

  // What the program itself saw of a backend. Counts for its rate; opens nothing.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text,
                      Time now);
  HealthReport report(std::span<const Successes> successes, Time now) const;
  BreakerTotals totals() const;

  // Whether take_events() has something. Takes no lock.
  bool has_events() const noexcept;
  // Oldest first, at most kBreakerEvents.
  std::vector<BreakerEvent> take_events();

  // In a forked child, from its handler: breakers, counts and events restart under a new lock; settings stay. The
  // old state is left behind: a thread that does not exist here may have been changing it.
  void abandon() noexcept;

 private:
  const BreakerSettings& in_force() const noexcept;

  std::atomic<BoardState*> state_;
  // Two, of which one is in force, so that a child finds a whole one whatever a thread was writing at the fork.
  BreakerSettings settings_[2];
  std::atomic<uint32_t> in_force_{0};
};

}  // namespace yard::health
