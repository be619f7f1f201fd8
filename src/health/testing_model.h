// SPDX-License-Identifier: Apache-2.0
// The model of docs/concepts/breakers.md, written a second time and in another way: clocks that tick once a second
// instead of times that are compared. The property test holds the board against it.
#pragma once

#include <yard/health.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace yard::health::testing {

struct ModelSettings {
  int threshold = 5, cooldown = 30, growth = 2, cap = 600, decay = 600;
  int successes = 2, calls = 3, dry_percent = 0, keys_to_kernel = 4;
};

// One breaker.
struct ModelBreaker {
  enum { closed, open, half_open } state = closed;
  bool by_hand = false;  // open, and faults of others do not change that
  int left = 0;  // seconds until the state, or the period, ends; 0 while open: only a hand ends it
  int in_a_row = 0;        // faults
  int repeats = 0;         // not forgiven
  int healthy = 0;         // seconds without a fault
  int made = 0, good = 0;  // probes of this period, good ones of this phase
  bool inside = false, inside_counts = false;

  void tick(const ModelSettings& s) {
    if (state == closed && repeats > 0 && ++healthy == s.decay) healthy = 0, --repeats;
    if (state == closed || left == 0 || --left > 0) return;
    if (state == open) enter_half_open();
    made = 0;
    left = s.cooldown;
  }
  void enter_half_open() {
    state = half_open;
    good = 0;
    by_hand = inside_counts = false;
  }
  void trip(const ModelSettings& s) {
    int64_t length = s.cooldown;
    for (int i = 0; i < repeats; ++i) length = std::min<int64_t>(length * s.growth, s.cap);
    left = static_cast<int>(std::min<int64_t>(length, s.cap));
    ++repeats;
    state = open;
    by_hand = inside_counts = false;
  }
  void close() {
    in_a_row = 0;
    if (state == closed) return;
    state = closed;
    by_hand = inside_counts = false;
    healthy = 0;
  }
  void hold(int seconds) {  // 0: until a hand closes it
    state = open;
    by_hand = true;
    left = seconds;
    inside_counts = false;
  }
  bool would_admit(const ModelSettings& s) const {
    return state == half_open && !inside && made < s.calls;
  }
  void enter() {
    ++made;
    inside = inside_counts = true;
  }
  // Whether the result was one of this phase.
  bool leave() {
    inside = false;
    return std::exchange(inside_counts, false);
  }
};

// A kernel with some keys.
struct Model {
  ModelSettings s;
  ModelBreaker kernel;
  std::vector<ModelBreaker> keys;
  int decisions = 0, opened = 0, would_open = 0;

  void tick() {
    kernel.tick(s);
    for (ModelBreaker& k : keys) k.tick(s);
  }
  // The one that decides about calls of the key.
  ModelBreaker& judge(size_t key) {
    return kernel.state != ModelBreaker::closed ? kernel : keys[key];
  }

  void success(size_t key) {
    if (judge(key).state == ModelBreaker::closed) keys[key].in_a_row = 0;
  }
  void fault(size_t key) {
    if (judge(key).state != ModelBreaker::closed) return;  // it is late
    ModelBreaker& k = keys[key];
    k.healthy = 0;
    if (++k.in_a_row < s.threshold || !trip(k)) return;
    const auto open = std::count_if(keys.begin(), keys.end(), [](const ModelBreaker& b) {
      return b.state != ModelBreaker::closed;
    });
    if (open >= s.keys_to_kernel && trip(kernel)) release();
  }
  bool trip(ModelBreaker& b) {
    // The n-th decision is a dry run if the share that is owed grows by one with it.
    const int before = decisions++ * s.dry_percent / 100;
    if (decisions * s.dry_percent / 100 > before) return b.in_a_row = 0, ++would_open, false;
    b.trip(s);
    ++opened;
    return true;
  }
  void release() {
    for (ModelBreaker& k : keys)
      if (!k.by_hand) k.close();
  }
  // A probe that `b` had let in ends.
  void end_probe(ModelBreaker& b, size_t key, ErrorClass outcome) {
    const bool counts = b.leave();
    if (outcome == ErrorClass::kFault && counts) return b.trip(s), void(++opened);
    if (outcome == ErrorClass::kFault) return fault(key);
    if (outcome == ErrorClass::kOk && counts && ++b.good == s.successes) b.close();
  }
};

}  // namespace yard::health::testing
