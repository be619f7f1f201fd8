// SPDX-License-Identifier: Apache-2.0
// What the board publishes: immutable, for the selector and for plans. One breaker decides about a call: that of
// the whole kernel if it is not closed, else that of the key.
//
// A view only says what is open. The last kernel able to run is never ejected, and only the selector knows which
// that is: it decides, here nobody does.
#pragma once

#include <yard/health.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "health/key.h"
#include "health/probe_slots.h"

namespace yard::health {

using Time = std::chrono::steady_clock::time_point;
// `until` of what waits for a hand.
inline constexpr Time kManual = Time::max();

struct BreakerStatus {
  Key key;             // of a whole kernel only op, kernel and backend
  BreakerState state;  // kOpen or kHalfOpen
  Time until;          // open: when probes begin, or kManual; half-open: unused, time_point{}
  std::shared_ptr<ProbeSlots> probes;  // half-open: ask it before the kernel runs
};

class HealthSnapshot {
 public:
  struct OfOp {
    std::vector<BreakerStatus> kernels;  // whole ones
    std::vector<BreakerStatus> keys;
    // What holds back calls of that key: the kernel as a whole, or the key; else null.
    const BreakerStatus* find(const Key& key) const noexcept;
  };

  // Null if nothing of that op is held back.
  const OfOp* of_op(std::string_view op) const noexcept;
  const std::map<std::string, OfOp, std::less<>>& ops() const noexcept { return ops_; }
  const std::vector<Device>& devices_lost() const noexcept { return lost_; }
  bool is_lost(Device device) const noexcept;
  bool empty() const noexcept { return ops_.empty() && lost_.empty(); }

 private:
  friend class BoardState;
  std::map<std::string, OfOp, std::less<>> ops_;
  std::vector<Device> lost_;
};

}  // namespace yard::health
