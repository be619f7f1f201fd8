// SPDX-License-Identifier: Apache-2.0
// What a runtime does behind its calls: puts in force what health says, moves what time moves, tells
// listeners. Its thread begins with the first thing there is to do; a child of fork gets its own.
#pragma once

#include <yard/runtime_health.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/owned_per_process.h"
#include "base/task_thread.h"
#include "dispatch/core.h"

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
  void remove(uint64_t id);

  detail::Core& core() const noexcept { return core_; }
  // For whatever else is to be done later.
  base::TaskThread& thread() noexcept { return thread_; }

 private:
  struct Shared {
    std::mutex lock;
    std::map<uint64_t, std::shared_ptr<BreakerListener>> listeners;
    uint64_t last_id = 0;
    // When work() will be called by itself, at the latest.
    std::chrono::steady_clock::time_point scheduled = {};
    void inherit(Shared& parents);
  };

  void work();
  void publish();
  void tell(const std::vector<BreakerEvent>& events);
  void schedule(std::optional<std::chrono::steady_clock::time_point> next);

  detail::Core& core_;
  base::OwnedPerProcess<Shared> shared_;
  std::atomic<pid_t> poked_{0};  // the process in which work() is on its way
  base::TaskThread thread_;      // last: it uses the rest
};

}  // namespace yard::runtime
