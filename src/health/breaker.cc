// SPDX-License-Identifier: Apache-2.0
// CircuitBreaker, ProbeSlots, and the texts of breakers.
#include "health/breaker.h"

#include <fmt/format.h>

#include <mutex>

#include "base/fork.h"
#include "base/text.h"

namespace yard {
namespace health {
namespace {

// The word: four flags and four numbers of 15 bits. Every transition is one exchange.
constexpr uint64_t kBusy = 1, kStale = 2, kFaulted = 4, kActive = 8;
constexpr unsigned kEntered = 4, kSuccesses = 19, kCalls = 34, kNeeded = 49;
constexpr uint64_t kMask = (1u << 15) - 1;

constexpr uint64_t get(uint64_t word, unsigned at) { return word >> at & kMask; }
constexpr uint64_t put(uint64_t value, unsigned at) {
  return (value < kMask ? value : kMask) << at;
}

ProbeSlots::Result result_of(uint64_t word) {
  if ((word & kActive) == 0) return ProbeSlots::Result::kNone;
  if ((word & kFaulted) != 0) return ProbeSlots::Result::kReopen;
  return get(word, kSuccesses) >= get(word, kNeeded) ? ProbeSlots::Result::kClose
                                                     : ProbeSlots::Result::kNone;
}

bool admits(uint64_t word) {
  return (word & kActive) != 0 && (word & kBusy) == 0 &&
         result_of(word) == ProbeSlots::Result::kNone && get(word, kEntered) < get(word, kCalls);
}

// When a phase ends, a probe inside becomes stale.
uint64_t make_stale(uint64_t word) { return (word & kBusy) != 0 ? kBusy | kStale : 0; }

// Replaces the word by f(word); returns the new one.
template <class F>
uint64_t change(std::atomic<uint64_t>& word, F f) noexcept {
  uint64_t before = word.load(std::memory_order_relaxed), after = f(before);
  while (!word.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                     std::memory_order_relaxed))
    after = f(before);
  return after;
}

}  // namespace

bool ProbeSlots::try_enter() noexcept {
  uint64_t word = word_.load(std::memory_order_relaxed);
  do {
    if (!admits(word)) return false;
  } while (!word_.compare_exchange_weak(word, (word | kBusy) + put(1, kEntered),
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
  return true;
}

bool ProbeSlots::leave(ErrorClass outcome) noexcept {
  bool counted = false;
  const uint64_t now = change(word_, [&](uint64_t word) {
    const bool stale = (word & kStale) != 0 || (word & kBusy) == 0;
    counted = !stale && (outcome == ErrorClass::kOk || outcome == ErrorClass::kFault);
    word &= ~(kBusy | kStale);
    if (counted && outcome == ErrorClass::kFault) word |= kFaulted;
    if (counted && outcome == ErrorClass::kOk) word += put(1, kSuccesses);
    return word;
  });
  return counted && result_of(now) != Result::kNone;
}

void ProbeSlots::begin(uint32_t calls, uint32_t successes_needed) noexcept {
  change(word_, [&](uint64_t word) {
    return kActive | put(calls, kCalls) | put(successes_needed, kNeeded) | make_stale(word);
  });
}

void ProbeSlots::next_period(uint32_t calls) noexcept {
  change(word_, [&](uint64_t word) {
    return (word & ~(kMask << kEntered | kMask << kCalls)) | put(calls, kCalls);
  });
}

void ProbeSlots::end() noexcept { change(word_, make_stale); }

ProbeSlots::Result ProbeSlots::result() const noexcept {
  return result_of(word_.load(std::memory_order_acquire));
}
bool ProbeSlots::busy() const noexcept {
  return (word_.load(std::memory_order_acquire) & kBusy) != 0;
}
bool ProbeSlots::would_admit() const noexcept {
  return admits(word_.load(std::memory_order_acquire));
}

std::string after_failures(const BreakerSettings& settings, const Machine& machine, Evidence e,
                           std::string_view last) {
  const uint32_t in_a_row = machine.in_a_row();
  const FailureCount& window = machine.count(e);
  std::string text =
      in_a_row >= settings.failure_threshold
          ? fmt::format("{} failure{} in a row", in_a_row, in_a_row == 1 ? "" : "s")
      : e == Evidence::kCall
          ? fmt::format("{} of {} calls failed", window.failed, window.calls)
          : fmt::format("{} of {} checked results were wrong", window.failed, window.calls);
  return last.empty() ? text : text + ", the last: " + cut(last);
}

std::string after_probe(std::string_view why) {
  return fmt::format("a probe failed{}{}", why.empty() ? "" : ": ", cut(why));
}

}  // namespace health

using Kind = BreakerEvent::Kind;

const char* to_string(BreakerState state) noexcept {
  switch (state) {
    case BreakerState::kClosed: return "closed";
    case BreakerState::kOpen: return "open";
    case BreakerState::kHalfOpen: return "half_open";
  }
  return "?";
}

const char* to_string(BreakerEvent::Kind kind) noexcept {
  switch (kind) {
    case Kind::kOpened: return "opened";
    case Kind::kHalfOpen: return "half_open";
    case Kind::kClosed: return "closed";
    case Kind::kWouldOpen: return "would_open";
    case Kind::kDeviceLost: return "device_lost";
    case Kind::kDeviceBack: return "device_back";
  }
  return "?";
}

std::string to_string(const BreakerEvent& e) {
  std::string text = fmt::format("{}: {}", e.subject, to_string(e.kind));
  if (e.kind == Kind::kOpened)
    text += e.until == std::chrono::steady_clock::time_point::max()
                ? " until it is closed manually"
                : " for " + base::seconds_text(e.until - e.at);
  return e.text.empty() ? text : text + ": " + e.text;
}

struct CircuitBreaker::State {
  std::mutex lock;
  health::Machine machine;
  health::ProbeSlots probes;
  health::DryRun dry_run;
  health::EventQueue events;
  BreakerCounters counters;
  // Changes with every state, so that results of calls that began before are recognized. The upper half is the process,
  // so that results of the parent's calls are late in a forked child.
  uint64_t epoch = uint64_t{base::this_process()} << 32;

  // A forked child restarts.
  void inherit(State&) {}

  bool same_process(uint64_t other) const { return epoch >> 32 == other >> 32; }

  void emit(const std::string& name, Kind kind, std::string text, Time now) {
    events.add(
        {kind, {}, {}, name, std::move(text), now, kind == Kind::kOpened ? machine.until : Time{}});
  }
};

struct CircuitBreaker::Impl {
  base::OwnedPerProcess<State> state;
  BreakerSettings settings;
  std::string name;

  // Applies the passage of time. The lock is held here and below.
  void advance(State& s, Time now) {
    if (s.machine.state == BreakerState::kClosed || now < s.machine.until) return;
    if (s.machine.until == Time::max()) return;
    const bool was_open = s.machine.state == BreakerState::kOpen;
    s.machine.begin_period(settings, now);
    if (!was_open) return s.probes.next_period(settings.half_open_max_calls);
    ++s.epoch;
    s.probes.begin(settings.half_open_max_calls, settings.success_threshold);
    s.emit(name, Kind::kHalfOpen, {}, now);
  }

  void open(State& s, std::string why, Time now) {
    s.machine.open(settings, now);
    ++s.epoch;
    ++s.counters.opened;
    s.probes.end();
    s.emit(name, Kind::kOpened, std::move(why), now);
  }

  void close(State& s, Time now) {
    s.machine.close(now);
    ++s.epoch;
    s.probes.end();
    s.emit(name, Kind::kClosed, {}, now);
  }

  void fault(State& s, std::string_view why, Time now) {
    if (!settings.enabled || !s.machine.fault(settings, now)) return;
    std::string text = health::after_failures(settings, s.machine, health::Evidence::kCall, why);
    if (!s.dry_run.only_report(settings.dry_run)) return open(s, std::move(text), now);
    s.machine.forget_failures();
    ++s.counters.would_open;
    s.emit(name, Kind::kWouldOpen, std::move(text), now);
  }
};

CircuitBreaker::CircuitBreaker(std::string name, const BreakerSettings& settings)
    : impl_(std::make_unique<Impl>()) {
  if (validate(settings).ok()) impl_->settings = settings;
  impl_->name = std::move(name);
}
CircuitBreaker::~CircuitBreaker() = default;

const std::string& CircuitBreaker::name() const noexcept { return impl_->name; }

BreakerPermit CircuitBreaker::try_acquire(Time now) {
  BreakerPermit permit;
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  impl_->advance(s, now);
  const bool half_open = s.machine.state == BreakerState::kHalfOpen;
  if (s.machine.state == BreakerState::kOpen || (half_open && !s.probes.try_enter())) {
    ++s.counters.refused;
    return permit;
  }
  ++s.counters.admitted;
  permit.breaker_ = this;
  permit.epoch_ = s.epoch;
  permit.probe_ = half_open;
  return permit;
}

void CircuitBreaker::finish(const BreakerPermit& permit, ErrorClass result, std::string_view why,
                            Time now) {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  if (result == ErrorClass::kOk) ++s.counters.successes;
  if (result == ErrorClass::kFault) ++s.counters.failures;
  // The slot is freed even if the result is late; a probe of the parent process has no slot here.
  if (permit.probe_ && s.same_process(permit.epoch_)) s.probes.leave(result);
  if (permit.epoch_ != s.epoch) {
    if (result != ErrorClass::kDeclined) ++s.counters.late;
    return;
  }
  if (!permit.probe_) {
    if (result == ErrorClass::kOk) s.machine.success(impl_->settings, now);
    if (result == ErrorClass::kFault) impl_->fault(s, why, now);
    return;
  }
  switch (s.probes.result()) {
    case health::ProbeSlots::Result::kNone: return;
    case health::ProbeSlots::Result::kClose: return impl_->close(s, now);
    case health::ProbeSlots::Result::kReopen: return impl_->open(s, health::after_probe(why), now);
  }
}

void CircuitBreaker::open(Time now, std::string_view why,
                          std::optional<std::chrono::nanoseconds> duration) {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  s.machine.open_manually(impl_->settings, now, duration);
  ++s.epoch;
  ++s.counters.opened;
  s.probes.end();
  s.emit(impl_->name, Kind::kOpened,
         why.empty() ? "manual override" : "manual override: " + health::cut(why), now);
}

void CircuitBreaker::close(Time now) {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  if (s.machine.state != BreakerState::kClosed) return impl_->close(s, now);
  s.machine.forget_failures();
}

void CircuitBreaker::reset(Time now) {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  if (s.machine.state != BreakerState::kClosed) impl_->close(s, now);
  s.machine.forget_failures();
  s.machine.repeats = 0;
}

BreakerState CircuitBreaker::state(Time now) const {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  const bool over = s.machine.state == BreakerState::kOpen && s.machine.until <= now;
  return over && s.machine.until != Time::max() ? BreakerState::kHalfOpen : s.machine.state;
}

std::optional<CircuitBreaker::Time> CircuitBreaker::open_until(Time now) const {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  if (s.machine.state != BreakerState::kOpen || s.machine.until <= now) return std::nullopt;
  if (s.machine.until == Time::max()) return std::nullopt;
  return s.machine.until;
}

BreakerCounters CircuitBreaker::counters() const {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  BreakerCounters all = s.counters;
  all.events_dropped = s.events.dropped();
  return all;
}

std::vector<BreakerEvent> CircuitBreaker::take_events() {
  State& s = impl_->state.get();
  const std::lock_guard lock(s.lock);
  return s.events.take();
}

BreakerPermit& BreakerPermit::operator=(BreakerPermit&& other) noexcept {
  if (this == &other) return *this;
  if (breaker_ != nullptr) breaker_->finish(*this, ErrorClass::kDeclined, {}, {});
  breaker_ = std::exchange(other.breaker_, nullptr);
  epoch_ = other.epoch_;
  probe_ = std::exchange(other.probe_, false);
  return *this;
}

BreakerPermit::~BreakerPermit() {
  if (breaker_ != nullptr) breaker_->finish(*this, ErrorClass::kDeclined, {}, {});
}

void BreakerPermit::success(CircuitBreaker::Time now) {
  if (breaker_ != nullptr)
    std::exchange(breaker_, nullptr)->finish(*this, ErrorClass::kOk, {}, now);
}

void BreakerPermit::failure(CircuitBreaker::Time now, std::string_view why) {
  if (breaker_ != nullptr)
    std::exchange(breaker_, nullptr)->finish(*this, ErrorClass::kFault, why, now);
}

}  // namespace yard
