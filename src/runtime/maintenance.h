// SPDX-License-Identifier: Apache-2.0
// Background work of a runtime: publishes health, moves breakers when their time comes, sweeps old plans, calls breaker
// listeners. Its threads start with the first task; a forked child gets its own. Listeners have a thread to themselves,
// so that a listener that blocks does not hold up breakers.
#pragma once

#include <yard/health.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "base/fork.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "health/breaker.h"
#include "rules/callbacks.h"

namespace yard::runtime {

class Maintenance {
 public:
  explicit Maintenance(detail::Core& core);
  ~Maintenance();
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  // Schedules work(): the board has changed, or plans have got a lifetime. Quick; any thread, also inside a call.
  void wake() noexcept;
  // Publishes the board before it returns.
  void publish_now();

  rules::Callbacks<BreakerListener> listeners;

  detail::Core& core() const noexcept { return core_; }

 private:
  struct Shared {
    std::mutex lock;
    health::EventQueue pending;  // bounded: a listener may block
    bool posted = false;         // call_listeners() is scheduled
    // When work() is scheduled next.
    std::chrono::steady_clock::time_point scheduled = {};
    void inherit(Shared&) {}
  };

  void work();
  // False if another thread has published it, which may still be inside CoreServices::on_change().
  bool publish();
  // Logs events and schedules the listeners.
  void notify(std::vector<BreakerEvent> events);
  // On the listeners' thread.
  void call_listeners();
  void schedule(std::optional<std::chrono::steady_clock::time_point> next);

  detail::Core& core_;
  base::OwnedPerProcess<Shared> shared_;
  std::atomic<uint32_t> woken_{0};  // the process in which work() is scheduled
  base::TaskThread listeners_thread_, thread_;
  base::FirstUse in_child_;  // last: it uses the rest
};

}  // namespace yard::runtime
