// SPDX-License-Identifier: Apache-2.0
// Admission of probes to a half-open breaker: one at a time, a limited number per period. One word, lock-free: plans
// hold it, and calls enter from any thread.
//
// The owner of the breaker begins and ends it. The same object serves all half-open phases, so that a probe that
// outlasts its phase still excludes others; its result is late and is dropped.
#pragma once

#include <yard/status.h>

#include <atomic>
#include <cstdint>

namespace yard::health {

class ProbeSlots {
 public:
  // Whether the caller may make a probe. If so, it must leave() exactly once.
  bool try_enter() noexcept;
  // The result of the probe: kOk is a success, kFault a failure; other classes only free the slot. Returns whether this
  // decides the phase: then call Board::advance(), or Board::fault() for a fault. After a failure no other probe
  // enters.
  bool leave(ErrorClass outcome) noexcept;

  // For the owner of the breaker.
  // A new half-open phase: earlier results, and that of a probe still inside, are dropped.
  void begin(uint32_t calls, uint32_t successes_needed) noexcept;
  // A new period of the same phase, with that many calls.
  void next_period(uint32_t calls) noexcept;
  // Ends the phase.
  void end() noexcept;

  enum class Result : uint8_t { kNone, kClose, kReopen };
  Result result() const noexcept;
  // Whether a probe is inside.
  bool busy() const noexcept;
  // Whether try_enter() would succeed.
  bool would_admit() const noexcept;

 private:
  std::atomic<uint64_t> word_{0};  // see probe_slots.cc
};

}  // namespace yard::health
