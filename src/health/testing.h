// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of a board: keys, times and states.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>

#include "health/board.h"

namespace yard::health::testing {

inline constexpr Time kStart = Time(std::chrono::hours(1000)), t0 = kStart;
inline constexpr BreakerState kClosed = BreakerState::kClosed, kOpen = BreakerState::kOpen,
                              kHalfOpen = BreakerState::kHalfOpen;

inline Key key_of(const std::string& kernel = "default.simd", uint64_t rows = 8,
                  const std::string& op = "rms_norm", Device device = {}) {
  Key key{op, kernel, kernel.substr(kernel.find('.') + 1), {device, 0, {}}};
  const DType dtypes[] = {DType::f32, DType::f32};
  key.kind.dtypes = pack_dtypes(dtypes);
  key.kind.sizes.add(rows);
  key.kind.sizes.add(4096);
  return key;
}

// Returns text like `rms_norm default.simd (f32 f32, sizes 8-15 4096-8191, cuda:0)`.
inline std::string to_string(const Key& key) {
  return key.op + " " + key.kernel + " (" + health::to_string(key.kind) + ")";
}

// Returns the breaker that decides about calls of the key, or null if it is closed. The pointer is
// valid as long as the snapshot.
inline const BreakerStatus* breaker_of(const HealthSnapshot& snapshot, const Key& key) {
  const HealthSnapshot::OfOp* op = snapshot.of_op(key.op);
  return op == nullptr ? nullptr : op->find(key);
}

// Returns whether no device is lost and all breakers of the op are closed.
inline bool all_closed(const Board& board, const char* op = "rms_norm") {
  const auto snapshot = board->snapshot();
  const HealthSnapshot::OfOp* of = snapshot->of_op(op);
  return snapshot->devices_lost().empty() &&
         (of == nullptr || (of->kernels.empty() && of->keys.empty()));
}

inline BreakerState state_of(const Board& board, const Key& key) {
  const auto snapshot = board->snapshot();
  const BreakerStatus* b = breaker_of(*snapshot, key);
  return b == nullptr ? BreakerState::kClosed : b->state;
}

inline std::shared_ptr<ProbeSlots> probes_of(const Board& board, const Key& key) {
  const auto snapshot = board->snapshot();
  const BreakerStatus* b = breaker_of(*snapshot, key);
  return b == nullptr ? nullptr : b->probes;
}

// Reports a failed call that is not a probe. Returns whether the snapshot changed.
inline bool fail(Board& board, const Key& key, Time now) {
  return board->fault(key, ErrorClass::kFault, "it broke", now).changed;
}
// Reports a failed call after `successes` calls have succeeded.
inline BoardUpdate fail_after(Board& board, const Key& key, uint64_t successes, Time now) {
  return board->fault(key, ErrorClass::kFault, "it broke", now, {.successes = successes});
}
inline void fail_times(Board& board, const Key& key, uint32_t times, Time now) {
  for (uint32_t i = 0; i < times; ++i) fail(board, key, now);
}

// Makes a probe as the runtime does. Returns false if it is not admitted.
inline bool try_once(Board& board, const Key& key, ErrorClass outcome, Time now) {
  const auto probes = probes_of(board, key);
  if (probes == nullptr || !probes->try_enter()) return false;
  const bool decided = probes->leave(outcome);
  if (outcome != ErrorClass::kOk)
    board->fault(key, outcome, "the probe broke", now);
  else if (decided)
    board->advance(now);
  return true;
}

}  // namespace yard::health::testing
