// SPDX-License-Identifier: Apache-2.0
// The way into a half-open breaker: one probe at a time, a few in each period. Lock-free, one word: plans hold
// it, calls on any thread ask it.
//
// The board opens and shuts it. The same object serves each half-open period, so a probe that outlasts a
// change still keeps others out, and its result, now late, is dropped.
#pragma once

#include <yard/status.h>

#include <atomic>
#include <cstdint>

namespace yard::health {

class ProbeSlots {
 public:
  // Whether the caller may make a probe. If so, it must leave() exactly once.
  bool try_enter() noexcept;
  // How the probe ended: kOk is a success, kFault a failure; other classes say nothing about the kernel and only free
  // the place. Returns whether the probe decided something: then call Board::advance(), or Board::fault(), which
  // does it for a fault. A failure lets nobody else in from this moment on.
  bool leave(ErrorClass outcome) noexcept;

  // ---- For whoever owns the state ----

  // A new half-open phase: results so far are forgotten, and that of a call still inside will be.
  void begin(uint32_t calls, uint32_t successes_needed) noexcept;
  // A new period of the same phase: calls are counted again.
  void refill(uint32_t calls) noexcept;
  // The end of the phase.
  void shut() noexcept;

  enum class Result : uint8_t { kNone, kClose, kReopen };
  Result result() const noexcept;
  // Whether a probe is on its way.
  bool busy() const noexcept;
  // Whether try_enter() would say yes. Changes nothing.
  bool would_admit() const noexcept;

 private:
  std::atomic<uint64_t> word_{0};  // see probe_slots.cc
};

}  // namespace yard::health
