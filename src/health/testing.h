// SPDX-License-Identifier: Apache-2.0
// Keys, times and looks at a board, for tests.
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
  Key key{op, kernel, kernel.substr(kernel.find('.') + 1), device, 0, {}};
  const DType dtypes[] = {DType::f32, DType::f32};
  key.dtypes = pack_dtypes(dtypes);
  key.sizes.add(rows);
  key.sizes.add(4096);
  return key;
}

// What holds back calls of the key, or null. Valid as long as the view.
inline const Held* held(const View& view, const Key& key) {
  const View::OfOp* op = view.of_op(key.op);
  return op == nullptr ? nullptr : op->find(key);
}

inline BreakerState state_of(const Board& board, const Key& key) {
  const auto view = board.view();
  const Held* h = held(*view, key);
  return h == nullptr ? BreakerState::kClosed : h->state;
}

inline std::shared_ptr<Gate> gate_of(const Board& board, const Key& key) {
  const auto view = board.view();
  const Held* h = held(*view, key);
  return h == nullptr ? nullptr : h->gate;
}

// A failing call that is no trial. Whether the view changed.
inline bool fail(Board& board, const Key& key, Time now) {
  return board.fault(key, ErrorClass::kFault, "it broke", now).changed;
}
inline void fail_times(Board& board, const Key& key, uint32_t times, Time now) {
  for (uint32_t i = 0; i < times; ++i) fail(board, key, now);
}

// A trial call, as the runtime makes it. False if the gate lets nobody in.
inline bool try_once(Board& board, const Key& key, ErrorClass outcome, Time now) {
  const auto gate = gate_of(board, key);
  if (gate == nullptr || !gate->try_enter()) return false;
  const bool decided = gate->leave(outcome);
  if (outcome != ErrorClass::kOk)
    board.fault(key, outcome, "the trial broke", now);
  else if (decided)
    board.advance(now);
  return true;
}

}  // namespace yard::health::testing
