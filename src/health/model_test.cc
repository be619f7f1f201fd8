// SPDX-License-Identifier: Apache-2.0
// Runs 24 hours of a kernel with six kinds of calls, thousands of times faster than real time.
// Whatever calls, operators and late results do, the board must agree with the model.
#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <yard/abi.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "health/board.h"
#include "health/testing.h"

namespace yard::health {
namespace {

// The model of docs/concepts/breakers.md, implemented a second time: its counters tick once a
// second, while the board compares times.
struct ModelSettings {
  int threshold = 5, cooldown = 30, growth = 2, cap = 600;
  int successes = 2, calls = 3;
  int percent = 50, min_calls = 100, window = 10;
};

struct ModelBreaker {
  enum { closed, open, half_open } state = closed;
  int left = 0;              // seconds until the state or period ends; 0 if open manually
  int in_a_row = 0;          // consecutive faults
  std::vector<bool> window;  // whether each call failed, from the first failure on
  int window_age = 0;
  int repeats = 0;         // openings
  int healthy = 0;         // seconds without a fault
  int quiet = 0;           // seconds since the last fault, in any state
  int made = 0, good = 0;  // probes of this period, successes of this phase
  bool inside = false, inside_counts = false;

  void tick(const ModelSettings& s) {
    ++window_age, ++quiet;
    if (state == closed && ++healthy == s.cap) repeats = 0;
    if (state == closed || left == 0 || --left > 0) return;
    if (state == open) enter_half_open();
    made = 0;
    left = s.cooldown;
  }
  void enter_half_open() {
    state = half_open;
    good = 0;
    inside_counts = false;
  }
  void trip(const ModelSettings& s) {
    int64_t length = s.cooldown;
    for (int i = 0; i < repeats; ++i) length = std::min<int64_t>(length * s.growth, s.cap);
    left = static_cast<int>(std::min<int64_t>(length, s.cap));
    ++repeats;
    state = open;
    inside_counts = false;
  }
  // Returns whether the share of failures in the window reaches the limit.
  bool too_many(const ModelSettings& s) const {
    const auto bad = std::count(window.begin(), window.end(), true);
    return bad * 100 >= s.percent * static_cast<int64_t>(window.size());
  }
  bool enough(const ModelSettings& s) const {
    return window.size() >= static_cast<size_t>(s.min_calls);
  }
  bool window_is_over(const ModelSettings& s) const {
    return window_age > s.window || (enough(s) && !too_many(s));
  }
  void succeed(const ModelSettings& s) {
    in_a_row = 0;
    if (window.empty()) return;
    window.push_back(false);
    if (window_is_over(s)) window.clear();
  }
  // Counts a failure. Returns whether a threshold is reached.
  bool fail(const ModelSettings& s) {
    if (quiet > s.cap) in_a_row = 0;
    healthy = quiet = 0;
    ++in_a_row;
    if (window.empty() || window_is_over(s)) window.clear(), window_age = 0;
    window.push_back(true);
    return in_a_row >= s.threshold || (s.percent > 0 && enough(s) && too_many(s));
  }
  void close() {
    in_a_row = 0;
    window.clear();
    if (state == closed) return;
    state = closed;
    inside_counts = false;
    healthy = 0;
  }
  void hold() {  // stays open until it is closed manually
    state = open;
    left = 0;
    inside_counts = false;
  }
  bool would_admit(const ModelSettings& s) const {
    return state == half_open && !inside && made < s.calls;
  }
  void enter() {
    ++made;
    inside = inside_counts = true;
  }
  // Returns whether the probe belongs to this phase.
  bool leave() {
    inside = false;
    return std::exchange(inside_counts, false);
  }
};

struct Model {
  ModelSettings s;
  ModelBreaker kernel;
  std::vector<ModelBreaker> keys;
  int opened = 0;

  void tick() {
    kernel.tick(s);
    for (ModelBreaker& k : keys) k.tick(s);
  }
  // Returns the breaker that decides about calls of the key.
  ModelBreaker& deciding(size_t key) {
    return kernel.state != ModelBreaker::closed ? kernel : keys[key];
  }

  void success(size_t key) {
    if (deciding(key).state == ModelBreaker::closed) keys[key].succeed(s);
  }
  void fault(size_t key) {
    if (deciding(key).state != ModelBreaker::closed) return;  // the call is late
    ModelBreaker& k = keys[key];
    if (!k.fail(s)) return;
    trip(k);
    const auto open = std::count_if(keys.begin(), keys.end(), [](const ModelBreaker& b) {
      return b.state != ModelBreaker::closed;
    });
    if (open < 4) return;
    trip(kernel);
    close_keys();
  }
  void trip(ModelBreaker& b) {
    b.trip(s);
    ++opened;
  }
  void close_keys() {
    for (ModelBreaker& k : keys) k.close();
  }
  void end_probe(ModelBreaker& b, size_t key, ErrorClass outcome) {
    const bool counts = b.leave();
    if (outcome == ErrorClass::kFault && counts) return trip(b);
    if (outcome == ErrorClass::kFault) return fault(key);
    if (outcome == ErrorClass::kOk && counts && ++b.good == s.successes) b.close();
  }
};

using namespace testing;
using std::chrono::seconds;

#if defined(YARD_UNDER_ASAN)
constexpr int kDay = 6 * 3600;  // enough to see that nothing illegal happens
#else
constexpr int kDay = 24 * 3600;
#endif
constexpr size_t kKeys = 6;

ModelSettings any_settings() {
  const auto in = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  ModelSettings s;
  s.threshold = in(1, 5);
  s.cooldown = in(1, 60);
  s.growth = in(1, 3);
  s.cap = s.cooldown * in(1, 20);
  s.successes = in(1, 4);
  s.calls = in(1, 3);
  s.percent = *rc::gen::element(0, 1, 30, 50, 100);
  s.min_calls = in(1, 8);
  s.window = in(1, 600);
  return s;
}

BreakerSettings as_board(const ModelSettings& m) {
  BreakerSettings s;
  s.failure_threshold = static_cast<uint32_t>(m.threshold);
  s.failure_percent = static_cast<uint32_t>(m.percent);
  s.failure_min_calls = static_cast<uint32_t>(m.min_calls);
  s.failure_window = seconds(m.window);
  s.cooldown = seconds(m.cooldown);
  s.cooldown_growth = m.growth;
  s.cooldown_cap = seconds(m.cap);
  s.success_threshold = static_cast<uint32_t>(m.successes);
  s.half_open_max_calls = static_cast<uint32_t>(m.calls);
  return s;
}

class Day {
 public:
  explicit Day(const ModelSettings& s) : board_(as_board(s)), model_{s, {}, {}} {
    model_.keys.resize(kKeys);
    RC_ASSERT(validate(as_board(s)).ok());
  }

  void wait(int length) {
    for (int i = 0; i < length; ++i) {
      ++second_;
      model_.tick();
      // In this test the maintenance thread is always on time.
      const auto due = board_->next_change();
      if (due && *due <= now()) board_->advance(now());
    }
  }

  void call(size_t key, ErrorClass outcome) {
    ModelBreaker& judge = model_.deciding(key);
    if (judge.state == ModelBreaker::closed) {
      if (outcome == ErrorClass::kOk) {
        ++succeeded_[key];  // the board reads this at the next failure
        model_.success(key);
      } else {
        report(key, outcome);
      }
      if (outcome == ErrorClass::kFault) model_.fault(key);
    } else if (begin_probe(key)) {
      end_probe(key, outcome);
    }
  }

  // Tries to begin a probe for the key. Board and model must agree.
  bool begin_probe(size_t key) {
    if (inside_[key]) return false;  // one thread makes all calls of a key
    ModelBreaker& judge = model_.deciding(key);
    const auto probes = probes_of(board_, key_at(key));
    const bool entered = probes != nullptr && probes->try_enter();
    RC_ASSERT(entered == judge.would_admit(model_.s));
    if (!entered) return false;
    judge.enter();
    inside_[key] = {probes, &judge};
    return true;
  }

  void end_probe(size_t key, ErrorClass outcome) {
    if (!inside_[key]) return;
    const auto [probes, judge] = *std::exchange(inside_[key], std::nullopt);
    const bool decided = probes->leave(outcome);
    if (outcome != ErrorClass::kOk)
      report(key, outcome);
    else if (decided)
      board_->advance(now());
    model_.end_probe(*judge, key, outcome);
  }

  // Reports the end of a call that began long ago.
  void late(size_t key, bool ok) {
    if (model_.deciding(key).state == ModelBreaker::closed) return;
    if (ok)
      ++succeeded_[key];
    else
      RC_ASSERT_FALSE(report(key, ErrorClass::kFault).changed);
  }

  enum class Manual { kOpen, kClose, kReset };
  void manually(Manual what, size_t key) {
    if (what == Manual::kOpen) {
      board_->open(key_at(key), "", now());
      model_.kernel.hold();
      return model_.close_keys();
    }
    const bool reset = what == Manual::kReset;
    board_->close(key_at(key), now(), reset);
    const auto close = [&](ModelBreaker& one) {
      one.close();
      if (reset) one.repeats = 0;
    };
    close(model_.kernel);
    for (ModelBreaker& k : model_.keys) close(k);
  }

  void compare() const {
    const auto snapshot = board_->snapshot();
    const HealthSnapshot::OfOp* op = snapshot->of_op("rms_norm");
    const BreakerStatus* whole = op == nullptr || op->kernels.empty() ? nullptr : &op->kernels[0];
    compare(whole, model_.kernel);
    for (size_t i = 0; i < kKeys; ++i) {
      const BreakerStatus* own = nullptr;
      if (op != nullptr)
        for (const BreakerStatus& h : op->keys)
          if (h.key == key_at(i)) own = &h;
      compare(own, model_.keys[i]);
    }
  }

  int second() const { return second_; }
  int opened() const { return model_.opened; }

 private:
  Time now() const { return kStart + seconds(second_); }
  BoardUpdate report(size_t key, ErrorClass outcome) {
    return board_->fault(key_at(key), outcome, "", now(), {.successes = succeeded_[key]});
  }
  static Key key_at(size_t i) { return key_of("default.simd", uint64_t{1} << i); }

  void compare(const BreakerStatus* held, const ModelBreaker& b) const {
    RC_ASSERT((held == nullptr) == (b.state == ModelBreaker::closed));
    if (held == nullptr) return;
    RC_ASSERT((held->state == BreakerState::kOpen) == (b.state == ModelBreaker::open));
    if (held->state == BreakerState::kOpen)
      RC_ASSERT(held->until == (b.left == 0 ? kManual : now() + seconds(b.left)));
    else
      RC_ASSERT(held->probes->would_admit() == b.would_admit(model_.s));
  }

  struct Inside {
    std::shared_ptr<ProbeSlots> probes;
    ModelBreaker* judge;
  };
  Board board_;
  Model model_;
  std::optional<Inside> inside_[kKeys];
  uint64_t succeeded_[kKeys] = {};
  int second_ = 0;
};

// How often each kind of call fails changes with the hour.
ErrorClass any_outcome(size_t key, int hour) {
  const int bad = (static_cast<int>(key) * 37 + hour * 13) % 100;
  const int die = *rc::gen::inRange(0, 100);
  if (die < bad) return ErrorClass::kFault;
  return die == 99 ? ErrorClass::kTransient : die == 98 ? ErrorClass::kDeclined : ErrorClass::kOk;
}

void step(Day& day) {
  using Manual = Day::Manual;
  const auto key = *rc::gen::inRange<size_t>(0, kKeys);
  const ErrorClass outcome = any_outcome(key, day.second() / 3600);
  const int die = *rc::gen::inRange(0, 100);
  if (die < 70)
    day.call(key, outcome);
  else if (die < 80)
    day.begin_probe(key);
  else if (die < 92)
    day.end_probe(key, outcome);
  else if (die < 98)
    day.late(key, die % 2 == 0);
  else
    day.manually(*rc::gen::element(Manual::kOpen, Manual::kClose, Manual::kReset), key);
}

TEST(BreakerModel, TheBoardMatchesTheModelFor24Hours) {
  int opened = 0;
  EXPECT_TRUE(rc::check("24 hours", [&] {
    Day day(any_settings());
    while (day.second() < kDay) {
      // The kernel is mostly busy and sometimes idle.
      day.wait(*rc::gen::element(0, 0, 1, 1, 2, 5, 20, 60, 300, 1500));
      step(day);
      day.compare();
    }
    opened += day.opened();
  }));
  EXPECT_GT(opened, 100) << "nothing was tried";
}

}  // namespace
}  // namespace yard::health
