// SPDX-License-Identifier: Apache-2.0
#include "runtime/maintenance.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace yard::runtime {

using Clock = std::chrono::steady_clock;

Maintenance::Maintenance(detail::Core& core) : core_(core) {}

Maintenance::~Maintenance() {
  thread_.stop();
  listeners_thread_.stop();
}

void Maintenance::wake() noexcept {
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  try {
    if (thread_.post([this] { work(); }).ok()) return;
  } catch (...) {
  }
  // Without a thread nothing is published that time would have to end: calls go on as before.
  woken_.store(false, std::memory_order_release);
}

void Maintenance::work() {
  woken_.store(false, std::memory_order_release);  // later changes wake it again
  core_.board->advance(Clock::now());
  auto events = core_.board->take_events();
  if (!publish()) core_.published.catch_up();  // with what a call has published
  notify(std::move(events));                   // after they are in force
  const auto next = core_.board->next_change();
  schedule(next);
  schedule(core_.planner.sweep(Clock::now()));
}

void Maintenance::publish_now() {
  core_.board->advance(Clock::now());
  if (!publish()) core_.published.catch_up();
  wake();  // for the events
}

bool Maintenance::publish() {
  if (core_.board->snapshot() == core_.snapshot()->health) return false;
  if (const Status s = core_.published.publish_health(); !s.ok())
    base::log(LogLevel::kError, "health",
              fmt::format("breaker states could not be published: {}", s.message()));
  return true;
}

void Maintenance::schedule(std::optional<Clock::time_point> next) {
  if (!next) return;
  {
    const std::lock_guard lock(lock_);
    // A run that comes earlier schedules again.
    if (scheduled_ > Clock::now() && scheduled_ <= *next) return;
    scheduled_ = *next;
  }
  thread_.post_at(*next, [this] { work(); }).ignore();
}

namespace {

LogLevel level_of(BreakerEvent::Kind kind) {
  using Kind = BreakerEvent::Kind;
  return kind == Kind::kOpened || kind == Kind::kDeviceLost ? LogLevel::kWarn : LogLevel::kInfo;
}

std::string text_of(const BreakerEvent& e) {
  std::string text = e.op.empty() ? fmt::format("Breaker '{}' {}", e.subject, to_string(e.kind))
                                  : fmt::format("Breaker of '{}' for {} '{}' ({}) {}", e.kernel,
                                                e.op.find('/') != e.op.npos ? "function" : "op",
                                                e.op, e.subject, to_string(e.kind));
  if (e.kind == BreakerEvent::Kind::kDeviceLost || e.kind == BreakerEvent::Kind::kDeviceBack)
    text = fmt::format("Device {}: {}", e.subject, to_string(e.kind));
  return e.text.empty() ? text : text + ": " + e.text;
}

}  // namespace

void Maintenance::notify(std::vector<BreakerEvent> events) {
  if (events.empty()) return;
  for (const BreakerEvent& e : events)
    if (base::log_enabled("health", level_of(e.kind)))
      base::log(level_of(e.kind), "health", text_of(e));
  if (listeners.empty()) return;
  {
    const std::lock_guard lock(lock_);
    for (BreakerEvent& e : events) pending_.add(std::move(e));
    if (std::exchange(posted_, true)) return;
  }
  const Status posted = listeners_thread_.post([this] { call_listeners(); });
  if (posted.ok()) return;
  base::log(LogLevel::kError, "health", posted.to_string());
  const std::lock_guard lock(lock_);
  posted_ = false;
}

void Maintenance::call_listeners() {
  std::vector<BreakerEvent> events;
  {
    const std::lock_guard lock(lock_);
    posted_ = false;
    events = pending_.take();
  }
  for (const BreakerEvent& e : events)
    listeners.for_each([&](const BreakerListener& listener) {
      try {
        listener(e);
      } catch (...) {
        base::log(LogLevel::kError, "health",
                  fmt::format("a listener for breakers threw: {}", base::current_exception_text()));
      }
    });
}

}  // namespace yard::runtime
