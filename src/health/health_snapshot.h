// SPDX-License-Identifier: Apache-2.0
// What a Board publishes for the selector and for plans: all breakers that are not closed, immutable. One breaker
// decides about a call: that of the kernel as a whole if it is not closed, else that of the key.
//
// The last kernel able to run is never excluded. Only the selector can tell which one that is, so it applies the rule.
#pragma once

#include <yard/health.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "health/key.h"
#include "health/probe_slots.h"

namespace yard::health {

using Time = std::chrono::steady_clock::time_point;
// `until` of a breaker that stays open until it is closed manually.
inline constexpr Time kManual = Time::max();

struct BreakerStatus {
  Key key;             // of a kernel as a whole: only op, kernel and backend
  BreakerState state;  // kOpen or kHalfOpen
  Time until;          // open: when it becomes half-open, or kManual; half-open: time_point{}
  std::shared_ptr<ProbeSlots> probes;  // half-open: enter before the kernel runs
};

class HealthSnapshot {
 public:
  struct OfOp {
    std::vector<BreakerStatus> kernels;  // as a whole
    std::vector<BreakerStatus> keys;
    // The breaker that decides about calls of the key; null if it is closed.
    const BreakerStatus* find(const Key& key) const noexcept {
      for (const BreakerStatus& b : kernels)
        if (b.key.kernel == key.kernel) return &b;
      for (const BreakerStatus& b : keys)
        if (b.key.kernel == key.kernel && b.key.device == key.device &&
            b.key.dtypes == key.dtypes && b.key.sizes == key.sizes)
          return &b;
      return nullptr;
    }
  };

  // Null if all breakers of the op are closed.
  const OfOp* of_op(std::string_view op) const noexcept {
    const auto at = ops_.find(op);
    return at == ops_.end() ? nullptr : &at->second;
  }
  const std::map<std::string, OfOp, std::less<>>& ops() const noexcept { return ops_; }
  const std::vector<Device>& devices_lost() const noexcept { return lost_; }
  bool is_lost(Device device) const noexcept {
    return std::find(lost_.begin(), lost_.end(), device) != lost_.end();
  }
  bool empty() const noexcept { return ops_.empty() && lost_.empty(); }

 private:
  friend class BoardState;
  std::map<std::string, OfOp, std::less<>> ops_;
  std::vector<Device> lost_;
};

}  // namespace yard::health
