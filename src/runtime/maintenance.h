// SPDX-License-Identifier: Apache-2.0
// What a runtime does behind its calls: puts in force what health says, moves what time moves, tells
// listeners. Its threads begin with the first thing there is to do; a forked child gets its own. Listeners have one
// to themselves: whatever they wait for, breakers go on.
#pragma once

#include <yard/health.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "base/background.h"
#include "base/first_use.h"
#include "base/owned_per_process.h"
#include "base/this_process.h"
#include "dispatch/core.h"
#include "health/machine.h"
#include "runtime/callbacks.h"

namespace yard::runtime {

class Maintenance {
 public:
  explicit Maintenance(detail::Core& core);
  ~Maintenance();
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  // Something has changed on the board. Quick; from any thread, also inside a call.
  void poke() noexcept;
  // The same, in force when it returns.
  void now();

  uint64_t add(BreakerListener listener);
  // Neither running, but on this thread, nor called again when this returns.
  void remove(uint64_t id);

  detail::Core& core() const noexcept { return core_; }
  // For whatever else is to be done later.
  base::TaskThread& thread() noexcept { return thread_; }

 private:
  struct Shared {
    std::mutex lock;
    Callbacks<BreakerListener> listeners;
    uint64_t last_id = 0;
    health::EventQueue untold;  // bounded: a listener may block
    bool telling = false;       // call_listeners() will come for them
    // When work() will be called by itself, at the latest.
    std::chrono::steady_clock::time_point scheduled = {};
    void inherit(Shared& parents);
  };

  void work();
  // False if that has been done; who did may still be telling those who follow.
  bool publish();
  // Logs them, and has the listeners called.
  void tell(std::vector<BreakerEvent> events);
  // On the listeners' thread.
  void call_listeners();
  void schedule(std::optional<std::chrono::steady_clock::time_point> next);

  detail::Core& core_;
  base::OwnedPerProcess<Shared> shared_;
  std::atomic<uint32_t> poked_{0};  // the process in which work() is on its way
  base::TaskThread listeners_thread_, thread_;
  base::FirstUse in_child_;  // last: it uses the rest
};

}  // namespace yard::runtime
