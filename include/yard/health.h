// SPDX-License-Identifier: Apache-2.0
// Health: how backends and kernels have been doing, as values to look at.
//
//   yard::HealthReport health = runtime.health();
//   for (const yard::KernelHealth& k : health.kernels)
//     std::printf("%s %s: %.1f %%\n", k.op.c_str(), k.kernel.c_str(), 100 * k.failure_rate());
//
// A report is a copy; making one changes nothing, no breaker either. Failures that are the caller's, and calls that
// a kernel declined, are counted and are no part of a rate.
#pragma once

#include <yard/status.h>
#include <yard/tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// ---- Breaker ----
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

namespace yard {

// How many failures of each class.
struct FailureCounts {
  std::array<uint64_t, 7> by_class{};  // by ErrorClass

  uint64_t of(ErrorClass c) const noexcept { return by_class[static_cast<size_t>(c)]; }
  // Those that speak against the kernel: transient, fault, device_lost, fatal.
  uint64_t counted() const noexcept {
    return of(ErrorClass::kTransient) + of(ErrorClass::kFault) + of(ErrorClass::kDeviceLost) +
           of(ErrorClass::kFatal);
  }
  bool operator==(const FailureCounts&) const = default;
};

struct HealthCounts {
  uint64_t successes = 0;
  FailureCounts failures;
  std::string last_error;
  std::optional<std::chrono::steady_clock::time_point> last_error_at;

  // From 0 to 1; 0 if nothing ran.
  double failure_rate() const noexcept {
    const auto bad = static_cast<double>(failures.counted());
    return bad == 0 ? 0 : bad / (bad + static_cast<double>(successes));
  }
};

// A breaker that is not closed.
struct OpenBreaker {
  std::string key;  // for people: `f32 f32, sizes 8-15 4096-8191, cuda:0`; empty: the whole kernel
  BreakerState state = BreakerState::kOpen;
  // When an open one lets probes begin, or when the half-open one's next period begins; nothing: it was opened
  // manually and waits for one.
  std::optional<std::chrono::steady_clock::time_point> until;
  uint32_t repeats = 0;  // times it opened and that are not yet forgiven
  bool by_hand = false;
};

struct KernelHealth : HealthCounts {
  std::string op, kernel, backend;
  std::vector<OpenBreaker> open;
};

// The kernels of a backend together, and what the program recorded of it.
struct BackendHealth : HealthCounts {
  std::string backend;
  uint32_t open_kernels = 0;  // kernels of which something is open
};

// Since the runtime, or the forked child, began.
struct BreakerTotals {
  uint64_t opened = 0, half_opened = 0, closed = 0, would_open = 0;
  uint64_t untracked = 0;       // faults that no breaker counts: as many keys as may be are open
  uint64_t events_dropped = 0;  // that nobody took in time
};

struct HealthReport {
  std::vector<BackendHealth> backends;  // by name
  std::vector<KernelHealth> kernels;    // by op, then by kernel
  std::vector<Device> devices_lost;
  BreakerTotals breakers;
};
// For people: a line for each backend, kernel and open breaker. `now` turns times into "in 12s", "3s ago".
YARD_API std::string to_string(const HealthReport& report,
                               std::chrono::steady_clock::time_point now);

}  // namespace yard

// ---- Runtime health ----
// The health of one runtime: what it knows of its kernels, and what the program may say about them.
//
//   yard::Health health = runtime.health();
//   std::puts(to_string(health.report(), std::chrono::steady_clock::now()).c_str());
//   health.open("rms_norm", "vendor.acme", "bad firmware").or_throw();      // until somebody closes it
//   health.on_event([](const yard::BreakerEvent& e) { page_somebody(e.text); });
//   health.device_back({2, 0});                                             // after a reset of cuda:0
//
// Breakers open and close by themselves (breaker.h). All functions may be called from any thread, also from
// inside kernels; none waits for calls.

namespace yard {

namespace runtime {
class Maintenance;
}
class Runtime;

// Called for each event, one after the other, on a thread of the runtime: it delays no call and no breaker. May use
// the runtime in every way but destroy it. What it throws is logged. Of the events that come while it blocks the last
// 256 are kept.
using BreakerListener = std::function<void(const BreakerEvent&)>;

// Valid as long as its runtime is.
class Health {
 public:
  // Computed now; looking changes nothing.
  YARD_API HealthReport report() const;

  // All calls of a kernel; or of a backend's implementation of a dispatched function, with "group/name" for the op and
  // the backend for the kernel. An error if there is none of that name. In force when the function returns.
  YARD_API Status open(std::string_view op, std::string_view kernel, std::string_view why = {});
  YARD_API Status close(std::string_view op, std::string_view kernel);
  // Closed, and as if it had never failed.
  YARD_API Status reset(std::string_view op, std::string_view kernel);

  // Every kernel of the device is out until the program says that it is back. Kernels that report
  // YARD_DEVICE_LOST do the first by themselves.
  YARD_API void device_lost(Device device, std::string_view why);
  YARD_API void device_back(Device device);

  // What the program itself saw of a backend. Counts for its rate; opens nothing.
  YARD_API void record_success(std::string_view backend, uint64_t count = 1);
  YARD_API void record_failure(std::string_view backend, ErrorClass error_class,
                               std::string_view text);

  // What breakers follow from now on, under what a rule file says.
  YARD_API Status set_settings(const BreakerSettings& settings);
  // What is in force.
  YARD_API BreakerSettings settings() const;

  // The number is for remove_listener(): when that returns, the function is neither running, but on the calling
  // thread, nor called again.
  YARD_API uint64_t on_event(BreakerListener listener);
  YARD_API void remove_listener(uint64_t id);

 private:
  friend class Runtime;
  explicit Health(runtime::Maintenance& m) : maintenance_(&m) {}
  runtime::Maintenance* maintenance_;
};

}  // namespace yard
