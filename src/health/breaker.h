// SPDX-License-Identifier: Apache-2.0
// The parts that CircuitBreaker and Board share: one breaker without lock and clock, its probe
// slots, and events. docs/concepts/breakers.md describes the model.
#pragma once

#include <yard/health.h>

#include <algorithm>
#include <atomic>

namespace yard::health {

using Time = std::chrono::steady_clock::time_point;
// The `until` of a breaker that stays open until it is closed manually.
inline constexpr Time kManual = Time::max();

// Counts failures while a breaker is closed: how many come in a row, and their share in a window
// that begins with a failure. The window ends after `failure_window`, or when it has
// `failure_min_calls` calls and the share of failures is below `failure_percent`.
struct FailureCount {
  Time begin{};  // when the window began
  uint16_t in_a_row = 0;
  uint16_t calls = 0, failed = 0;  // in the window; 0 without a window

  void failure(const BreakerSettings& s, Time now);
  void success(const BreakerSettings& s, Time now, uint64_t count);
  bool reached(const BreakerSettings& s) const {
    return s.failure_percent != 0 && calls >= s.failure_min_calls && !is_harmless(s);
  }

 private:
  bool is_over(const BreakerSettings& s, Time now) const {
    return now - begin > s.failure_window || is_harmless(s);
  }
  bool is_harmless(const BreakerSettings& s) const {
    return calls >= s.failure_min_calls && failed * 100u < calls * s.failure_percent;
  }
};

// Admits probes to a half-open breaker: one at a time, and a limited number per period. Lock-free.
// A probe that outlasts its half-open phase still excludes others in the next phase, and its result
// is dropped.
class ProbeSlots {
 public:
  // If this returns true, the caller makes a probe and must call leave() exactly once.
  bool try_enter() noexcept;
  // Only kOk and kFault count. Returns whether the result decides the phase: then call
  // BoardState::fault() after a fault, else BoardState::advance().
  bool leave(ErrorClass outcome) noexcept;

  // Only the owner of the breaker calls begin(), next_period() and end().
  void begin(uint32_t calls, uint32_t successes_needed) noexcept;
  void next_period(uint32_t calls) noexcept;
  void end() noexcept;

  enum class Result : uint8_t { kNone, kClose, kReopen };
  Result result() const noexcept { return state().result(); }
  bool busy() const noexcept { return state().busy; }                   // a probe is inside
  bool would_admit() const noexcept { return state().is_admitting(); }  // try_enter() would succeed

 private:
  struct alignas(uint64_t) State {
    uint16_t calls = 0;      // left in this period
    uint16_t successes = 0;  // still needed to close
    bool active = false;     // half-open
    bool busy = false;       // a probe is inside
    bool stale = false;      // the probe inside belongs to an earlier phase
    bool failed = false;     // a probe has failed

    Result result() const noexcept {
      if (!active) return Result::kNone;
      if (failed) return Result::kReopen;
      return successes == 0 ? Result::kClose : Result::kNone;
    }
    bool is_admitting() const noexcept {
      return active && !busy && calls > 0 && result() == Result::kNone;
    }
  };
  static_assert(sizeof(State) == sizeof(uint64_t));
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  template <class F>
  State change(const F& f) noexcept;

  std::atomic<State> state_{State{}};
};

struct Breaker {
  Time until{};  // when it becomes half-open, or when the next period of probes begins
  Time since{};  // while closed: when the time without faults began
  FailureCount calls, results;  // while closed: failed calls, and checked results that were wrong
  uint64_t seen = 0;            // successes that `calls` has counted
  uint16_t repeats = 0;         // openings in a row; read them with repeats_at()
  BreakerState state = BreakerState::kClosed;
  bool manual = false;                 // opened manually
  std::string why{};                   // reason of the manual opening
  bool wrong_results = false;          // a check has found wrong results since the last close
  std::shared_ptr<ProbeSlots> probes;  // made when they are first needed

  bool closed() const { return state == BreakerState::kClosed; }
  bool busy() const { return probes != nullptr && probes->busy(); }
  // Repeats are forgotten after `cooldown_cap` without a fault.
  uint32_t repeats_at(const BreakerSettings& s, Time now) const {
    return closed() && now - since >= s.cooldown_cap ? 0 : repeats;
  }

  // Counts a failed call or a wrong result while the breaker is closed. `successes` counts all
  // calls that have succeeded. Returns the reason to open, as in `5 failures in a row`, or an empty
  // text.
  std::string fault(const BreakerSettings& s, Time now, bool wrong, uint64_t successes);
  void forget_failures() { calls = results = {}, seen = 0; }
  void open(const BreakerSettings& s, Time now);
  // Does not count as a repeat. Without `duration`, the breaker stays open until close().
  void open_manually(const BreakerSettings& s, Time now,
                     std::optional<std::chrono::nanoseconds> duration = {});
  // Returns whether the breaker has become half-open.
  bool advance(const BreakerSettings& s, Time now);
  ProbeSlots::Result probed() const {
    return state == BreakerState::kHalfOpen ? probes->result() : ProbeSlots::Result::kNone;
  }
  void close(Time now);  // forgets failures, too
  Time forgotten_at(const BreakerSettings& s) const {
    if (!closed() || busy()) return Time::max();
    return since + std::max(s.cooldown_cap, s.failure_window) + std::chrono::nanoseconds(1);
  }
};

// Keeps at most kBreakerEvents events, and drops the oldest ones.
class EventQueue {
 public:
  void add(BreakerEvent event);
  std::vector<BreakerEvent> take() { return std::exchange(events_, {}); }
  uint64_t dropped() const noexcept { return dropped_; }

 private:
  std::vector<BreakerEvent> events_;
  uint64_t dropped_ = 0;
};

// Returns the defaults if the settings are invalid.
BreakerSettings usable(const BreakerSettings& settings);
// Texts that come from kernels are cut to this size.
inline constexpr size_t kMostText = 500;
// Returns text like `manual override: bad firmware`, or only `what` if there is no reason.
std::string with_reason(std::string_view what, std::string_view reason,
                        std::string_view between = ": ");

}  // namespace yard::health
