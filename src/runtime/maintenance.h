// SPDX-License-Identifier: Apache-2.0
// Background work of a runtime: publishes health, moves breakers when their time comes, sweeps old
// plans and calls breaker listeners. Listeners have their own thread, because they may block.
#pragma once

#include <yard/health.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "base/tasks.h"
#include "dispatch/core.h"
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
  void schedule(std::optional<Time> next);

  detail::Core& core_;
  std::atomic<bool> woken_{false};   // work() is scheduled
  std::atomic<int64_t> waiting_{0};  // events for listeners; bounded, because a listener may block
  Time scheduled_ = {};              // when work() is scheduled next; used by thread_ only
  base::TaskThread listeners_thread_, thread_{"yard-events", {.in_child = [this] { work(); }}};
  const base::InChild in_child_{[this] { woken_ = false, waiting_ = 0, scheduled_ = {}; }};
};

}  // namespace yard::runtime
