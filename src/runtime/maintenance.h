// SPDX-License-Identifier: Apache-2.0
// Background work of a runtime: publishes health, moves breakers when their time comes, sweeps old
// plans and calls breaker listeners. Listeners have their own thread, because they may block.
#pragma once

#include <yard/health.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "base/mutex.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "health/breaker.h"
#include "rules/callbacks.h"

namespace yard::runtime {

class Maintenance {
 public:
  explicit Maintenance(detail::Core& core);
  ~Maintenance();

  // Schedules work(). Any thread may call this, also inside a call, because it is quick.
  void wake() noexcept;
  void publish_now();

  rules::Callbacks<BreakerListener> listeners;

  detail::Core& core() const noexcept { return core_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  void work();
  void publish();
  void notify(std::vector<BreakerEvent> events);
  void call_listeners();
  void schedule(std::optional<Time> next);

  detail::Core& core_;
  std::atomic<bool> woken_{false};        // work() is scheduled
  base::Mutex lock_{base::Rank::kBoard};  // guards the following members
  health::EventQueue pending_;            // bounded, because a listener may block
  bool posted_ = false;                   // call_listeners() is scheduled
  Time scheduled_ = {};                   // when work() is scheduled next
  base::TaskThread listeners_thread_, thread_{"yard-events", {.in_child = [this] { work(); }}};
  const base::InChild in_child_{[this] {
    woken_.store(false, std::memory_order_relaxed);
    pending_ = {}, posted_ = false, scheduled_ = {};
  }};
};

}  // namespace yard::runtime
