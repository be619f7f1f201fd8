// SPDX-License-Identifier: Apache-2.0
// A trace of what a runtime does over time, for Perfetto. See yard/trace.h.
#pragma once

#include <yard/config.h>
#include <yard/health.h>
#include <yard/trace.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "registry/interfaces.h"
#include "telemetry/call_texts.h"

namespace yard::runtime {

class Timeline final : public registry::CallObserver {
 public:
  explicit Timeline(size_t max_events);
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void seen(const registry::ObservedCall& call) noexcept override;
  // A forked child records nothing: the trace is its parent's.
  void forked() noexcept override { forked_.store(true, std::memory_order_relaxed); }

  void changed(const ConfigEvent& event);
  void changed(const BreakerEvent& event);

  // What was seen so far.
  std::string to_json();

  // Of the listeners that call changed().
  uint64_t config_listener = 0, breaker_listener = 0;

 private:
  using Clock = std::chrono::steady_clock;
  struct Event;
  struct Chunk;  // of one thread
  struct Change {
    Clock::time_point at;
    const char* category;
    std::string name, text;
  };
  // Room for an event of this thread; null: there are too many.
  Event* next();
  void publish() noexcept;
  void add(Change change);
  const uint64_t id_;  // no other has or had it
  const Clock::time_point start_ = Clock::now();
  const uint64_t start_ticks_;
  const size_t most_;  // events
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> full_{false}, forked_{false};
  telemetry::CallTexts texts_;

  std::mutex lock_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Change> changes_;
};

}  // namespace yard::runtime
