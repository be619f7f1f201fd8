// SPDX-License-Identifier: Apache-2.0
// CircuitBreaker, ProbeSlots, and the texts of breakers.
#include "health/breaker.h"

#include <fmt/format.h>

#include "base/mutex.h"
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

bool Breaker::advance(const BreakerSettings& s, Time now) {
  if (closed() || until == Time::max() || now < until) return false;
  const bool was_open = state == BreakerState::kOpen;
  if (probes == nullptr) probes = std::make_shared<ProbeSlots>();
  state = BreakerState::kHalfOpen;
  manual = false;
  until = now + s.cooldown;
  if (was_open)
    probes->begin(s.half_open_max_calls, s.success_threshold);
  else
    probes->next_period(s.half_open_max_calls);
  return was_open;
}

std::string after_failures(const BreakerSettings& settings, const Breaker& breaker, Evidence e,
                           std::string_view last) {
  const uint32_t in_a_row = breaker.in_a_row();
  const FailureCount& window = breaker.count(e);
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

std::string manual_text(std::string_view why) {
  return fmt::format("manual override{}{}", why.empty() ? "" : ": ", cut(why));
}

}  // namespace health

using EventKind = BreakerEvent::Kind;

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
    case EventKind::kOpened: return "opened";
    case EventKind::kHalfOpen: return "half_open";
    case EventKind::kClosed: return "closed";
    case EventKind::kDeviceLost: return "device_lost";
    case EventKind::kDeviceBack: return "device_back";
  }
  return "?";
}

std::string to_string(const BreakerEvent& e) {
  std::string text = fmt::format("{}: {}", e.subject, to_string(e.kind));
  if (e.kind == EventKind::kOpened)
    text += e.until == std::chrono::steady_clock::time_point::max()
                ? " until it is closed manually"
                : " for " + base::seconds_text(e.until - e.at);
  return e.text.empty() ? text : text + ": " + e.text;
}

// The lock is held where a function of it runs.
struct CircuitBreaker::Impl {
  Impl(std::string n, const BreakerSettings& s) : name(std::move(n)), settings(s) {}

  const std::string name;
  const BreakerSettings settings;
  base::Mutex lock{base::Rank::kBreaker};
  health::Breaker breaker;
  health::EventQueue events;
  BreakerCounters counters;
  // Changes with every state, so that results of calls that began before are recognized. The upper half is the process,
  // so that results of the parent's calls are late in a forked child.
  uint64_t epoch = base::forks() << 32;
  base::InChild in_child{[this] {
    breaker = {}, events = {}, counters = {};
    epoch = base::forks() << 32;
  }};

  void emit(EventKind kind, std::string text, Time now) {
    if (kind == EventKind::kOpened) ++counters.opened;
    ++epoch;
    const Time until = kind == EventKind::kOpened ? breaker.until : Time{};
    events.add({kind, {}, {}, name, std::move(text), now, until});
  }
  void open(std::string why, Time now) {
    breaker.open(settings, now);
    emit(EventKind::kOpened, std::move(why), now);
  }
  void close(Time now) {
    const bool was_closed = breaker.closed();
    breaker.close(now);
    if (!was_closed) emit(EventKind::kClosed, {}, now);
  }
  void fault(std::string_view why, Time now) {
    if (settings.enabled && breaker.fault(settings, now))
      open(health::after_failures(settings, breaker, health::Evidence::kCall, why), now);
  }
};

CircuitBreaker::CircuitBreaker(std::string name, const BreakerSettings& settings)
    : impl_(new Impl(std::move(name), validate(settings).ok() ? settings : BreakerSettings())) {}
CircuitBreaker::~CircuitBreaker() = default;

const std::string& CircuitBreaker::name() const noexcept { return impl_->name; }

BreakerPermit CircuitBreaker::try_acquire(Time now) {
  BreakerPermit permit;
  Impl& i = *impl_;
  const std::lock_guard lock(i.lock);
  if (i.breaker.advance(i.settings, now)) i.emit(EventKind::kHalfOpen, {}, now);
  const bool half_open = i.breaker.state == BreakerState::kHalfOpen;
  if (i.breaker.state == BreakerState::kOpen || (half_open && !i.breaker.probes->try_enter())) {
    ++i.counters.refused;
    return permit;
  }
  ++i.counters.admitted;
  permit.breaker_ = this;
  permit.epoch_ = i.epoch;
  permit.probe_ = half_open;
  return permit;
}

void CircuitBreaker::finish(const BreakerPermit& permit, ErrorClass result, std::string_view why,
                            Time now) {
  Impl& i = *impl_;
  const std::lock_guard lock(i.lock);
  if (result == ErrorClass::kOk) ++i.counters.successes;
  if (result == ErrorClass::kFault) ++i.counters.failures;
  // The slot is freed even if the result is late; a probe of the parent process has no slot here.
  if (permit.probe_ && i.epoch >> 32 == permit.epoch_ >> 32) i.breaker.probes->leave(result);
  if (permit.epoch_ != i.epoch) {
    if (result != ErrorClass::kDeclined) ++i.counters.late;
    return;
  }
  if (!permit.probe_) {
    if (result == ErrorClass::kOk) i.breaker.calls.success(i.settings, now, 1);
    if (result == ErrorClass::kFault) i.fault(why, now);
    return;
  }
  switch (i.breaker.probed()) {
    case health::ProbeSlots::Result::kNone: return;
    case health::ProbeSlots::Result::kClose: return i.close(now);
    case health::ProbeSlots::Result::kReopen: return i.open(health::after_probe(why), now);
  }
}

void CircuitBreaker::open(Time now, std::string_view why,
                          std::optional<std::chrono::nanoseconds> duration) {
  const std::lock_guard lock(impl_->lock);
  impl_->breaker.open_manually(impl_->settings, now, duration);
  impl_->emit(EventKind::kOpened, health::manual_text(why), now);
}

void CircuitBreaker::close(Time now) {
  const std::lock_guard lock(impl_->lock);
  impl_->close(now);
}

void CircuitBreaker::reset(Time now) {
  const std::lock_guard lock(impl_->lock);
  impl_->close(now);
  impl_->breaker.repeats = 0;
}

BreakerState CircuitBreaker::state(Time now) const {
  const std::lock_guard lock(impl_->lock);
  const health::Breaker& b = impl_->breaker;
  const bool over = b.state == BreakerState::kOpen && b.until <= now && b.until != Time::max();
  return over ? BreakerState::kHalfOpen : b.state;
}

std::optional<CircuitBreaker::Time> CircuitBreaker::open_until(Time now) const {
  const std::lock_guard lock(impl_->lock);
  const health::Breaker& b = impl_->breaker;
  if (b.state != BreakerState::kOpen || b.until <= now || b.until == Time::max())
    return std::nullopt;
  return b.until;
}

BreakerCounters CircuitBreaker::counters() const {
  const std::lock_guard lock(impl_->lock);
  BreakerCounters all = impl_->counters;
  all.events_dropped = impl_->events.dropped();
  return all;
}

std::vector<BreakerEvent> CircuitBreaker::take_events() {
  const std::lock_guard lock(impl_->lock);
  return impl_->events.take();
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
