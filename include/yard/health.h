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

#include <yard/breaker.h>
#include <yard/tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
