// SPDX-License-Identifier: Apache-2.0
#include "health/breaker.h"

#include <fmt/format.h>

#include "base/mutex.h"
#include "base/text.h"

namespace yard {
namespace health {
namespace {

constexpr uint16_t kMost = 60'000;  // counts saturate here

uint16_t at_most(uint64_t n) { return static_cast<uint16_t>(std::min<uint64_t>(n, kMost)); }

std::chrono::nanoseconds cooldown_after(const BreakerSettings& s, uint32_t repeats) {
  auto ns = static_cast<double>(s.cooldown.count());
  const auto cap = static_cast<double>(s.cooldown_cap.count());
  if (s.cooldown_growth > 1)
    for (; repeats > 0 && ns < cap; --repeats) ns *= s.cooldown_growth;
  return ns < cap ? std::chrono::nanoseconds(static_cast<int64_t>(ns)) : s.cooldown_cap;
}

}  // namespace

void FailureCount::failure(const BreakerSettings& s, Time now) {
  in_a_row = at_most(in_a_row + 1u);
  if (s.failure_percent == 0) return;
  if (calls == 0 || is_over(s, now)) begin = now, calls = failed = 0;
  if (calls < kMost) ++calls, ++failed;
}

void FailureCount::success(const BreakerSettings& s, Time now, uint64_t count) {
  if (count == 0) return;
  in_a_row = 0;
  if (calls == 0) return;
  calls = at_most(calls + count);
  if (is_over(s, now)) calls = failed = 0;
}

template <class F>
ProbeSlots::State ProbeSlots::change(const F& f) noexcept {
  State before = state_.load(std::memory_order_relaxed), after = f(before);
  while (!state_.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                       std::memory_order_relaxed))
    after = f(before);
  return after;
}

bool ProbeSlots::try_enter() noexcept {
  bool admitted = would_admit();  // writes nothing if false
  if (admitted)
    change([&](State s) {
      admitted = s.is_admitting();
      if (admitted) s.busy = true, --s.calls;
      return s;
    });
  return admitted;
}

bool ProbeSlots::leave(ErrorClass outcome) noexcept {
  bool counted = false;
  const State now = change([&](State s) {
    counted = s.busy && !s.stale && (outcome == ErrorClass::kOk || outcome == ErrorClass::kFault);
    s.busy = s.stale = false;
    if (counted && outcome == ErrorClass::kFault) s.failed = true;
    if (counted && outcome == ErrorClass::kOk && s.successes > 0) --s.successes;
    return s;
  });
  return counted && now.result() != Result::kNone;
}

void ProbeSlots::begin(uint32_t calls, uint32_t successes_needed) noexcept {
  change([&](State s) {
    return State{at_most(calls), at_most(successes_needed), true, s.busy, s.busy, false};
  });
}

void ProbeSlots::next_period(uint32_t calls) noexcept {
  change([&](State s) { return s.calls = at_most(calls), s; });
}

void ProbeSlots::end() noexcept {
  change([](State s) { return State{0, 0, false, s.busy, s.busy, false}; });
}

std::string Breaker::fault(const BreakerSettings& s, Time now, bool wrong, uint64_t successes) {
  repeats = at_most(repeats_at(s, now));
  if (now - since > s.cooldown_cap) calls.in_a_row = results.in_a_row = 0;
  if (successes > seen) calls.success(s, now, successes - seen), seen = successes;
  since = std::max(since, now);
  FailureCount& count = wrong ? results : calls;
  count.failure(s, now);
  const uint32_t in_a_row = uint32_t{calls.in_a_row} + results.in_a_row;
  if (in_a_row >= s.failure_threshold)
    return fmt::format("{} failure{} in a row", in_a_row, in_a_row == 1 ? "" : "s");
  if (!count.reached(s)) return {};
  return fmt::format("{} of {} {}", count.failed, count.calls,
                     wrong ? "checked results were wrong" : "calls failed");
}

void Breaker::open(const BreakerSettings& s, Time now) {
  const uint32_t before = repeats_at(s, now);
  repeats = at_most(before + 1);
  until = now + cooldown_after(s, before);
  state = BreakerState::kOpen;
  if (probes != nullptr) probes->end();
}

void Breaker::open_manually(const BreakerSettings& s, Time now,
                            std::optional<std::chrono::nanoseconds> duration) {
  const uint32_t before = repeats_at(s, now);
  open(s, now);
  repeats = at_most(before);
  manual = true;
  until = duration && *duration < kManual - now ? now + *duration : kManual;
}

bool Breaker::advance(const BreakerSettings& s, Time now) {
  if (closed() || until == kManual || now < until) return false;
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

void Breaker::close(Time now) {
  forget_failures();
  wrong_results = false;
  if (closed()) return;  // keep `since`
  state = BreakerState::kClosed;
  manual = false;
  since = now;
  until = {};
  if (probes != nullptr) probes->end();
}

// ---- Events and texts ----

void EventQueue::add(BreakerEvent event) {
  if (events_.size() == kBreakerEvents) {
    events_.erase(events_.begin());
    ++dropped_;
  }
  events_.push_back(std::move(event));
}

BreakerSettings usable(const BreakerSettings& settings) {
  return validate(settings).ok() ? settings : BreakerSettings();
}

std::string with_reason(std::string_view what, std::string_view reason, std::string_view between) {
  return fmt::format("{}{}{}", what, reason.empty() ? "" : between,
                     base::printable(reason, kMostText));
}

}  // namespace health

using EventKind = BreakerEvent::Kind;

const char* to_string(BreakerState state) noexcept {
  constexpr const char* kNames[] = {"closed", "open", "half_open"};
  return kNames[static_cast<size_t>(state)];
}
const char* to_string(BreakerEvent::Kind kind) noexcept {
  constexpr const char* kNames[] = {"opened", "half_open", "closed", "device_lost", "device_back"};
  return kNames[static_cast<size_t>(kind)];
}

std::string to_string(const BreakerEvent& e) {
  std::string text = fmt::format("{}: {}", e.subject, to_string(e.kind));
  if (e.kind == EventKind::kOpened)
    text += e.until == health::kManual ? " until it is closed manually"
                                       : " for " + base::seconds_text(e.until - e.at);
  return e.text.empty() ? text : text + ": " + e.text;
}

struct CircuitBreaker::Impl {
  Impl(std::string n, const BreakerSettings& s) : name(std::move(n)), settings(s) {}

  const std::string name;
  const BreakerSettings settings;
  base::Mutex lock{base::Rank::kBreaker};
  health::Breaker breaker;
  health::EventQueue events;
  CircuitBreaker::Counters counters;
  // Changes with every state, so that results of earlier calls are recognized as late. The upper
  // half is the process, so that in a forked child all results of the parent are late.
  uint64_t epoch = base::forks() << 32;
  base::InChild in_child{[this] {
    breaker = {}, events = {}, counters = {};
    epoch = base::forks() << 32;
  }};

  void emit(EventKind kind, std::string text, Time now) {
    const bool opened = kind == EventKind::kOpened;
    counters.opened += opened;
    ++epoch;
    events.add({kind, {}, {}, name, std::move(text), now, opened ? breaker.until : Time{}});
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
  void ended(ErrorClass result, std::string_view why, Time now) {
    if (result == ErrorClass::kOk) breaker.calls.success(settings, now, 1);
    if (result != ErrorClass::kFault || !settings.enabled) return;
    if (const std::string reached = breaker.fault(settings, now, false, 0); !reached.empty())
      open(health::with_reason(reached, why, ", the last: "), now);
  }
  void probed(std::string_view why, Time now) {
    const health::ProbeSlots::Result result = breaker.probed();
    if (result == health::ProbeSlots::Result::kClose) close(now);
    if (result == health::ProbeSlots::Result::kReopen)
      open(health::with_reason("a probe failed", why), now);
  }
};

CircuitBreaker::CircuitBreaker(std::string name, const BreakerSettings& settings)
    : impl_(new Impl(std::move(name), health::usable(settings))) {}
CircuitBreaker::~CircuitBreaker() = default;

const std::string& CircuitBreaker::name() const noexcept { return impl_->name; }

BreakerPermit CircuitBreaker::try_acquire(Time now) {
  BreakerPermit permit;
  Impl& i = *impl_;
  const std::lock_guard lock(i.lock);
  if (i.breaker.advance(i.settings, now)) i.emit(EventKind::kHalfOpen, {}, now);
  permit.probe_ = i.breaker.state == BreakerState::kHalfOpen;
  if (permit.probe_ ? i.breaker.probes->try_enter() : i.breaker.closed()) {
    ++i.counters.admitted;
    permit.breaker_ = this, permit.epoch_ = i.epoch;
  } else {
    ++i.counters.refused;
    permit.probe_ = false;
  }
  return permit;
}

void CircuitBreaker::open(Time now, std::string_view why,
                          std::optional<std::chrono::nanoseconds> duration) {
  const std::lock_guard lock(impl_->lock);
  impl_->breaker.open_manually(impl_->settings, now, duration);
  impl_->emit(EventKind::kOpened, health::with_reason("manual override", why), now);
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
  const bool over = b.state == BreakerState::kOpen && b.until <= now;
  return over ? BreakerState::kHalfOpen : b.state;
}

std::optional<CircuitBreaker::Time> CircuitBreaker::open_until(Time now) const {
  const std::lock_guard lock(impl_->lock);
  const health::Breaker& b = impl_->breaker;
  const bool waits = b.state == BreakerState::kOpen && b.until > now && b.until != health::kManual;
  return waits ? std::optional(b.until) : std::nullopt;
}

CircuitBreaker::Counters CircuitBreaker::counters() const {
  const std::lock_guard lock(impl_->lock);
  CircuitBreaker::Counters all = impl_->counters;
  all.events_dropped = impl_->events.dropped();
  return all;
}

std::vector<BreakerEvent> CircuitBreaker::take_events() {
  const std::lock_guard lock(impl_->lock);
  return impl_->events.take();
}

void BreakerPermit::end(ErrorClass result, std::string_view why, CircuitBreaker::Time now) {
  if (breaker_ == nullptr) return;
  CircuitBreaker::Impl& i = *std::exchange(breaker_, nullptr)->impl_;
  const std::lock_guard lock(i.lock);
  i.counters.successes += result == ErrorClass::kOk;
  i.counters.failures += result == ErrorClass::kFault;
  // A late result frees its slot, too. A probe of the parent process has no slot here.
  if (probe_ && i.epoch >> 32 == epoch_ >> 32) i.breaker.probes->leave(result);
  if (epoch_ != i.epoch)
    i.counters.late += result != ErrorClass::kDeclined;
  else if (probe_)
    i.probed(why, now);
  else
    i.ended(result, why, now);
}

}  // namespace yard
