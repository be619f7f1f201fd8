// SPDX-License-Identifier: Apache-2.0
// Health counts failures of kernels and steers their circuit breakers (docs/concepts/breakers.md).
//
//   yard::Health health = runtime.health();
//   health.open("rms_norm", "vendor.acme", "bad firmware").or_throw();  // until close()
//   health.on_event([](const yard::BreakerEvent& e) { send_alert(e.text); });
//
// Any thread may call any function, also inside kernels. The breakers of a forked child are closed.
#pragma once

#include <yard/tensor.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace yard {

struct BreakerSettings {
  bool enabled = true;             // if false, breakers are only opened manually
  uint32_t failure_threshold = 5;  // consecutive failures that open it
  // The percentage of failures that also opens it, among at least `failure_min_calls` calls within
  // `failure_window`, which begins with a failure. 0 turns this off.
  uint32_t failure_percent = 50;
  uint32_t failure_min_calls = 100;
  std::chrono::nanoseconds failure_window = std::chrono::seconds(10);
  std::chrono::nanoseconds cooldown = std::chrono::seconds(30);  // of the first opening
  double cooldown_growth = 2;                                    // factor for each repeat
  // The longest cooldown. Repeats are forgotten after this time without a failure.
  std::chrono::nanoseconds cooldown_cap = std::chrono::minutes(10);
  uint32_t success_threshold = 2;    // successful probes that close it
  uint32_t half_open_max_calls = 3;  // probes per half-open period, which is as long as `cooldown`
  bool operator==(const BreakerSettings&) const = default;
};
YARD_API Status validate(const BreakerSettings& settings);  // the error names the invalid value

enum class BreakerState : uint8_t { kClosed, kOpen, kHalfOpen };  // "closed", "open", "half_open"
YARD_API const char* to_string(BreakerState state) noexcept;

struct BreakerEvent {
  enum class Kind : uint8_t { kOpened, kHalfOpen, kClosed, kDeviceLost, kDeviceBack };
  Kind kind = Kind::kOpened;
  std::string op, kernel;  // empty for a CircuitBreaker and for devices
  std::string subject;     // a CircuitBreaker's name, the key of a runtime's breaker, or a device
  std::string text;        // why
  std::chrono::steady_clock::time_point at;
  std::chrono::steady_clock::time_point until;  // when probes begin; max() if only close() ends it
  std::string who = {};                         // who changed it manually
};
YARD_API const char* to_string(BreakerEvent::Kind kind) noexcept;
YARD_API std::string to_string(const BreakerEvent& event);
inline constexpr size_t kBreakerEvents = 256;  // kept until taken; the oldest are dropped

class CircuitBreaker;

// Permission for one call, which counts only after success() or failure(). A permit is used by one
// thread at a time and must not outlive its breaker.
class [[nodiscard]] BreakerPermit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  BreakerPermit() noexcept = default;  // refused
  BreakerPermit(BreakerPermit&& other) noexcept { *this = std::move(other); }
  BreakerPermit& operator=(BreakerPermit&& other) noexcept {
    std::swap(breaker_, other.breaker_), std::swap(epoch_, other.epoch_);
    std::swap(probe_, other.probe_);
    return *this;
  }
  ~BreakerPermit() { end(ErrorClass::kDeclined, {}, {}); }

  explicit operator bool() const noexcept { return breaker_ != nullptr; }
  bool is_probe() const noexcept { return probe_; }
  void success(Time now) { end(ErrorClass::kOk, {}, now); }
  void failure(Time now, std::string_view why = {}) { end(ErrorClass::kFault, why, now); }

 private:
  friend class CircuitBreaker;
  YARD_API void end(ErrorClass result, std::string_view why, Time now);
  CircuitBreaker* breaker_ = nullptr;
  uint64_t epoch_ = 0;
  bool probe_ = false;
};

// A breaker for any program, which reads no clock. Without `duration`, open() lasts until close().
class YARD_API CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Counters {
    uint64_t admitted = 0, refused = 0;  // by try_acquire()
    uint64_t successes = 0, failures = 0, opened = 0;
    uint64_t late = 0;            // results of calls that began before the last state change
    uint64_t events_dropped = 0;  // not taken in time
  };

  // Invalid settings are replaced by the defaults.
  explicit CircuitBreaker(std::string name, const BreakerSettings& settings = {});
  ~CircuitBreaker();
  CircuitBreaker(const CircuitBreaker&) = delete;
  CircuitBreaker& operator=(const CircuitBreaker&) = delete;

  BreakerPermit try_acquire(Time now);

  void open(Time now, std::string_view why = {},
            std::optional<std::chrono::nanoseconds> duration = {});
  void close(Time now);
  void reset(Time now);  // also forgets repeats

  BreakerState state(Time now) const;
  // Returns when probes begin. Empty if the breaker is not open or only close() ends it.
  std::optional<Time> open_until(Time now) const;
  Counters counters() const;
  const std::string& name() const noexcept;
  std::vector<BreakerEvent> take_events();  // since the last call, oldest first

 private:
  friend class BreakerPermit;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct HealthCounts {
  struct Failures {
    std::array<uint64_t, 7> by_class{};  // by ErrorClass

    uint64_t of(ErrorClass c) const noexcept { return by_class[static_cast<size_t>(c)]; }
    uint64_t total() const noexcept {
      return std::accumulate(by_class.begin(), by_class.end(), uint64_t{0});
    }
    // Errors of callers and declined calls are not failures of the kernel.
    uint64_t counted() const noexcept {
      return total() - of(ErrorClass::kCaller) - of(ErrorClass::kDeclined) - of(ErrorClass::kOk);
    }
    bool operator==(const Failures&) const = default;
  };

  uint64_t successes = 0;
  Failures failures;
  std::string last_error;
  std::optional<std::chrono::steady_clock::time_point> last_error_at;
  YARD_API double failure_rate() const noexcept;  // from 0 to 1
};

struct KernelHealth : HealthCounts {
  struct Breaker {
    std::string key;  // `f32 f32, sizes 8-15 4096-8191, cuda:0`; empty for the kernel as a whole
    BreakerState state = BreakerState::kOpen;
    // When the next half-open period begins; empty if only close() ends it.
    std::optional<std::chrono::steady_clock::time_point> until;
    uint32_t repeats = 0;  // openings without `cooldown_cap` of health between them
    bool manual = false;
    std::string reason;  // why it was opened, if that was manual
  };
  struct FailedCall {
    std::string call;  // a CallSpec: `rms_norm(f32[8,5120], f32[5120])@cpu`
    uint64_t count = 0;
    std::chrono::steady_clock::time_point last;
  };

  std::string op, kernel, backend;
  std::vector<Breaker> open;
  std::vector<FailedCall> failed_calls;  // of different sizes, the latest first
};
inline constexpr size_t kFailedCalls = 8;  // the most that are listed for a kernel

// The sum over the kernels of a backend and the outcomes that the program recorded.
struct BackendHealth : HealthCounts {
  std::string backend;
  uint32_t open_kernels = 0;  // with a breaker that is not closed
};

struct HealthReport {
  std::vector<BackendHealth> backends;  // by name
  std::vector<KernelHealth> kernels;    // by op, then by kernel
  std::vector<Device> devices_lost;
  struct Breakers {  // since the start of the runtime, or of the forked child
    uint64_t opened = 0, half_opened = 0, closed = 0;
    uint64_t untracked = 0;       // faults that got no breaker, because 1,024 keys are not closed
    uint64_t events_dropped = 0;  // not taken in time
  } breakers;
};
// Writes a line for each backend, kernel and open breaker. Times are relative to `now`.
YARD_API std::string to_string(const HealthReport& report,
                               std::chrono::steady_clock::time_point now);

namespace runtime {
class Maintenance;
}
namespace verification {
class CanaryState;
}
class Runtime;
struct CanaryReport;  // verify.h

// Called for one event at a time on a thread of the runtime, which the listener must not destroy.
using BreakerListener = std::function<void(const BreakerEvent&)>;

// The health of one runtime, valid as long as the runtime.
class YARD_API Health {
 public:
  HealthReport report() const;
  CanaryReport canaries() const;  // since the runtime was made

  // For a backend's implementation of a function, `op` is "group/name" and `kernel` the backend.
  // Changes are in effect on return. Fails if there is no such kernel.
  Status open(std::string_view op, std::string_view kernel, std::string_view why = {});
  Status close(std::string_view op, std::string_view kernel);
  Status reset(std::string_view op, std::string_view kernel);  // also forgets all failures

  // Excludes all kernels of the device until device_back(), as YARD_DEVICE_LOST does.
  void device_lost(Device device, std::string_view why);
  void device_back(Device device);

  // Records outcomes that the program observed. They count for the backend's failure rate only.
  void record_success(std::string_view backend, uint64_t count = 1);
  void record_failure(std::string_view backend, ErrorClass error_class, std::string_view text);

  Status set_settings(const BreakerSettings& settings);  // rule files take precedence
  BreakerSettings settings() const;                      // in force now

  // After remove_listener() the listener is not called again, and runs on no other thread.
  uint64_t on_event(BreakerListener listener);
  void remove_listener(uint64_t id);

 private:
  friend class Runtime;
  Health(runtime::Maintenance& m, verification::CanaryState& c) : maintenance_(&m), canaries_(&c) {}
  runtime::Maintenance* maintenance_;
  verification::CanaryState* canaries_;
};

}  // namespace yard
