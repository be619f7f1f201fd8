// SPDX-License-Identifier: Apache-2.0
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
#pragma once

#include <yard/health.h>

#include <functional>
#include <string_view>

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
