// SPDX-License-Identifier: Apache-2.0
// What CircuitBreaker and Board share: one breaker, without lock and clock, its probes, and events.
// docs/concepts/breakers.md describes the model.
#pragma once

#include <yard/health.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yard::health {

// What an outcome is about. A call that returns tells nothing about its results unless they are checked.
enum class Evidence : uint8_t {
  kCall,    // whether the call failed
  kResult,  // whether its results, which were checked, are right
};

// Failures of one kind of evidence while a breaker is closed: how many in a row, and their share in a window that begins
// with a failure. The window ends when it has `failure_min_calls` calls and a smaller share of failures than
// `failure_percent`, or after `failure_window`. Both are up to date as of the last failure or reported success.
struct FailureCount {
  using Time = std::chrono::steady_clock::time_point;

  Time begin{};                    // of the window
  uint16_t in_a_row = 0;           // consecutive failures
  uint16_t calls = 0, failed = 0;  // in the window; 0: there is none

  void failure(const BreakerSettings& s, Time now) {
    if (in_a_row < kMost) ++in_a_row;
    if (s.failure_percent == 0) return;
    if (!is_open(s, now) || is_harmless(s)) begin = now, calls = failed = 0;
    if (calls < kMost) ++calls, ++failed;
  }
  // So many successes since the last failure or success.
  void success(const BreakerSettings& s, Time now, uint64_t count) {
    if (count == 0) return;
    in_a_row = 0;
    if (calls == 0) return;
    calls = static_cast<uint16_t>(std::min<uint64_t>(calls + count, kMost));
    if (!is_open(s, now) || is_harmless(s)) calls = failed = 0;
  }
  // Whether the share of failures is too large.
  bool reached(const BreakerSettings& s) const {
    return s.failure_percent != 0 && calls >= s.failure_min_calls && !is_harmless(s);
  }

 private:
  static constexpr uint16_t kMost = 60'000;
  bool is_open(const BreakerSettings& s, Time now) const {
    return calls > 0 && s.failure_percent != 0 && now - begin <= s.failure_window;
  }
  bool is_harmless(const BreakerSettings& s) const {
    return calls >= s.failure_min_calls && failed * 100u < calls * s.failure_percent;
  }
};

// Admission of probes to a half-open breaker: one at a time, a limited number per period. One word, lock-free: plans
// hold it, and calls enter from any thread.
//
// The owner of the breaker begins and ends it. The same object serves all half-open phases, so that a probe that
// outlasts its phase still excludes others; its result is late and is dropped.
class ProbeSlots {
 public:
  // Whether the caller may make a probe. If so, it must leave() exactly once.
  bool try_enter() noexcept;
  // The result of the probe: kOk is a success, kFault a failure; other classes only free the slot. Returns whether this
  // decides the phase: then call BoardState::advance(), or fault() for a fault. After a failure no other probe
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
  std::atomic<uint64_t> word_{0};  // see breaker.cc
};

// One breaker: its state, and its probe slots, which are made when first needed.
struct Breaker {
  using Time = std::chrono::steady_clock::time_point;

  Time until{};  // open: when it becomes half-open; half-open: when the next period begins
  Time since{};  // closed: when the time without faults began
  FailureCount calls, results;  // closed; by Evidence
  uint64_t seen = 0;            // successes that `calls` knows of
  uint16_t repeats = 0;         // openings in a row; use repeats_at()
  BreakerState state = BreakerState::kClosed;
  bool manual = false;         // opened manually
  bool wrong_results = false;  // results were found wrong since it was closed last
  std::shared_ptr<ProbeSlots> probes;

  bool closed() const { return state == BreakerState::kClosed; }
  // Whether a probe is inside.
  bool busy() const { return probes != nullptr && probes->busy(); }

  // Repeats are forgotten after `cooldown_cap` without a fault.
  uint32_t repeats_at(const BreakerSettings& s, Time now) const {
    return closed() && now - since >= s.cooldown_cap ? 0 : repeats;
  }

  FailureCount& count(Evidence e) { return e == Evidence::kCall ? calls : results; }
  const FailureCount& count(Evidence e) const { return e == Evidence::kCall ? calls : results; }
  uint32_t in_a_row() const { return uint32_t{calls.in_a_row} + results.in_a_row; }

  // Only when closed. Returns whether a threshold is reached. `successes` is the number of calls that have succeeded so
  // far, if these are counted elsewhere.
  bool fault(const BreakerSettings& s, Time now, Evidence e = Evidence::kCall,
             uint64_t successes = 0) {
    repeats = static_cast<uint16_t>(repeats_at(s, now));
    if (now - since > s.cooldown_cap) calls.in_a_row = results.in_a_row = 0;
    if (successes > seen) calls.success(s, now, successes - seen), seen = successes;
    since = std::max(since, now);
    count(e).failure(s, now);
    return in_a_row() >= s.failure_threshold || count(e).reached(s);
  }
  void forget_failures() { calls = results = {}, seen = 0; }

  void open(const BreakerSettings& s, Time now) {
    const uint32_t before = repeats_at(s, now);
    repeats = static_cast<uint16_t>(std::min<uint32_t>(before + 1, kMost));
    until = now + cooldown_after(s, before);
    set_open();
  }

  // Not a sign of bad health, so it is no repeat. Without `duration` it stays open until close().
  void open_manually(const BreakerSettings& s, Time now,
                     std::optional<std::chrono::nanoseconds> duration = {}) {
    repeats = static_cast<uint16_t>(repeats_at(s, now));
    manual = true;
    until = duration && *duration < Time::max() - now ? now + *duration : Time::max();
    set_open();
  }

  // Does what is due: half-open after the cooldown, then new periods for probes. Whether it has become half-open.
  bool advance(const BreakerSettings& s, Time now);
  // What its probes have decided.
  ProbeSlots::Result probed() const {
    return state == BreakerState::kHalfOpen ? probes->result() : ProbeSlots::Result::kNone;
  }

  void close(Time now) {
    forget_failures();
    wrong_results = false;
    if (closed()) return;  // `since` stays
    state = BreakerState::kClosed;
    manual = false;
    since = now;
    until = {};
    end_probes();
  }

  // When it is as good as a new one, unless there is another fault.
  Time forgotten_at(const BreakerSettings& s) const {
    if (!closed() || busy()) return Time::max();
    return since + std::max(s.cooldown_cap, s.failure_window) + std::chrono::nanoseconds(1);
  }

  static std::chrono::nanoseconds cooldown_after(const BreakerSettings& s, uint32_t repeats) {
    auto ns = static_cast<double>(s.cooldown.count());
    const auto cap = static_cast<double>(s.cooldown_cap.count());
    if (s.cooldown_growth > 1)
      for (; repeats > 0 && ns < cap; --repeats) ns *= s.cooldown_growth;
    return ns < cap ? std::chrono::nanoseconds(static_cast<int64_t>(ns)) : s.cooldown_cap;
  }

 private:
  static constexpr uint16_t kMost = 60'000;
  void set_open() {
    state = BreakerState::kOpen;
    end_probes();
  }
  void end_probes() const {
    if (probes != nullptr) probes->end();
  }
};

// Events until they are taken: bounded, the oldest are dropped.
class EventQueue {
 public:
  void add(BreakerEvent event) {
    if (events_.size() == kBreakerEvents) {
      events_.pop_front();
      ++dropped_;
    }
    events_.push_back(std::move(event));
  }
  std::vector<BreakerEvent> take() {
    std::vector<BreakerEvent> all(std::make_move_iterator(events_.begin()),
                                  std::make_move_iterator(events_.end()));
    events_.clear();
    return all;
  }
  uint64_t dropped() const noexcept { return dropped_; }

 private:
  std::deque<BreakerEvent> events_;
  uint64_t dropped_ = 0;
};

// Texts come from kernels and are cut to this length.
inline constexpr size_t kMostErrorText = 500;
inline std::string cut(std::string_view text) {
  return text.size() <= kMostErrorText ? std::string(text)
                                       : std::string(text.substr(0, kMostErrorText)) + "...";
}

// `5 failures in a row, the last: no answer`, or `51 of 101 calls failed, the last: no answer`: which threshold was
// reached by a failure of that kind.
std::string after_failures(const BreakerSettings& settings, const Breaker& breaker, Evidence e,
                           std::string_view last);
// `a probe failed: no answer`.
std::string after_probe(std::string_view why);
// `manual override: maintenance`.
std::string manual_text(std::string_view why);

}  // namespace yard::health
