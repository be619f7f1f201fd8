// SPDX-License-Identifier: Apache-2.0
// CircuitBreaker: stops calling what keeps failing, and tries it again now and then.
//
//   yard::CircuitBreaker breaker("database");
//   if (yard::BreakerPermit permit = breaker.try_acquire(Clock::now())) {
//     if (query()) permit.success(Clock::now());
//     else permit.failure(Clock::now(), "no answer");
//   }
//
// Closed: everyone may call; `failure_threshold` failures in a row open it. Open: nobody may, until a cooldown is
// over that grows with each repeat. Half-open: one probe at a time, a few in each period; `success_threshold`
// successes close it, one failure opens it again. docs/concepts/breakers.md has the whole model.
//
// The runtime keeps such a breaker for each kernel and kind of call; the class stands alone and serves any program.
// Time is passed in and no clock is read. Any thread may call anything; a lock is held for some dozen
// instructions. After fork the child's breaker is closed and usable at once.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yard {

struct BreakerSettings {
  bool enabled = true;  // off: failures open nothing; opening manually still works
  uint32_t failure_threshold = 5;
  std::chrono::nanoseconds cooldown = std::chrono::seconds(30);  // the first time it opens
  double cooldown_growth = 2;                                    // longer by this with each repeat
  std::chrono::nanoseconds cooldown_cap = std::chrono::minutes(10);  // never longer
  // A time without failures that takes one repeat back.
  std::chrono::nanoseconds decay = std::chrono::minutes(10);
  uint32_t success_threshold = 2;  // successes that close it when half-open
  // Probes in each period of half-open, one at a time. A period is as long as `cooldown`.
  uint32_t half_open_max_calls = 3;
  // Of a hundred times that it would open, how many are only counted and reported.
  uint32_t dry_run = 0;
  // For the runtime: so many open keys of a kernel open all of the kernel.
  uint32_t open_keys_to_open_kernel = 4;
  // For the runtime: the most keys that are remembered; a key that is closed goes first.
  uint32_t max_entries = 1024;

  bool operator==(const BreakerSettings&) const = default;
};
// Whether the values make sense; the message names the first that does not and what was expected.
YARD_API Status validate(const BreakerSettings& settings);

enum class BreakerState : uint8_t { kClosed, kOpen, kHalfOpen };
// "closed", "open", "half_open".
YARD_API const char* to_string(BreakerState state) noexcept;

struct BreakerEvent {
  enum class Kind : uint8_t {
    kOpened,
    kHalfOpen,
    kClosed,
    kWouldOpen,  // dry run: it stays closed
    kDeviceLost,
    kDeviceBack,
  };
  Kind kind = Kind::kOpened;
  std::string op, kernel;  // empty for a breaker that stands alone, and for devices
  std::string subject;     // its name; of the runtime's: the key; of a device: "cuda:1"
  std::string text;        // why
  std::chrono::steady_clock::time_point at;
  // kOpened: when probes begin; the largest time_point: when somebody says so.
  std::chrono::steady_clock::time_point until;
};
// "opened", "half_open", "closed", "would_open", "device_lost", "device_back".
YARD_API const char* to_string(BreakerEvent::Kind kind) noexcept;
// `database: opened for 30s: 5 failures in a row, the last: no answer`
YARD_API std::string to_string(const BreakerEvent& event);
// A breaker, or a runtime, keeps so many events for whoever takes them; beyond it the oldest goes.
inline constexpr size_t kBreakerEvents = 256;

struct BreakerCounters {
  uint64_t admitted = 0, refused = 0;  // what try_acquire() answered
  uint64_t successes = 0, failures = 0;
  uint64_t late = 0;  // results of calls that began before the last change, and so changed nothing
  uint64_t opened = 0, would_open = 0;
  uint64_t events_dropped = 0;  // that nobody took in time
};

class CircuitBreaker;

// Leave for one call. A result is given once, by success() or failure(); without one the call says nothing about
// health. Must not outlive its breaker. Belongs to one thread at a time.
class [[nodiscard]] BreakerPermit {
 public:
  BreakerPermit() noexcept = default;  // refused
  BreakerPermit(BreakerPermit&& other) noexcept : BreakerPermit() { *this = std::move(other); }
  YARD_API BreakerPermit& operator=(BreakerPermit&& other) noexcept;
  YARD_API ~BreakerPermit();

  explicit operator bool() const noexcept { return breaker_ != nullptr; }
  // Whether this is a probe.
  bool is_probe() const noexcept { return probe_; }
  YARD_API void success(std::chrono::steady_clock::time_point now);
  YARD_API void failure(std::chrono::steady_clock::time_point now, std::string_view why = {});

 private:
  friend class CircuitBreaker;
  CircuitBreaker* breaker_ = nullptr;
  uint64_t epoch_ = 0;
  bool probe_ = false;
};

class CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Settings that validate() refuses are replaced by the defaults; ask it first.
  YARD_API explicit CircuitBreaker(std::string name, const BreakerSettings& settings = {});
  YARD_API ~CircuitBreaker();
  CircuitBreaker(const CircuitBreaker&) = delete;
  CircuitBreaker& operator=(const CircuitBreaker&) = delete;

  YARD_API BreakerPermit try_acquire(Time now);

  // Manually. Without `hold` it stays open until somebody closes it.
  YARD_API void open(Time now, std::string_view why = {},
                     std::optional<std::chrono::nanoseconds> hold = {});
  YARD_API void close(Time now);
  // As new, but for counters and events.
  YARD_API void reset(Time now);

  // Looking changes nothing.
  YARD_API BreakerState state(Time now) const;
  // When an open breaker lets probes begin; nothing if it is not open or waits for a hand.
  YARD_API std::optional<Time> open_until(Time now) const;
  YARD_API BreakerCounters counters() const;
  YARD_API const std::string& name() const noexcept;

  // What happened since the last time, oldest first, at most kBreakerEvents. Nobody is called back, so no listener
  // can hold up a caller.
  YARD_API std::vector<BreakerEvent> take_events();

 private:
  friend class BreakerPermit;
  struct State;
  struct Impl;
  void finish(const BreakerPermit& permit, ErrorClass result, std::string_view why, Time now);

  std::unique_ptr<Impl> impl_;
};

}  // namespace yard
