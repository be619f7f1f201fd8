// SPDX-License-Identifier: Apache-2.0
// The background work of a runtime, and Health of yard/health.h.
#include "runtime/maintenance.h"

#include <fmt/format.h>

#include <utility>

#include "base/events.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/policy_changes.h"
#include "functions/table.h"
#include "verify/canary.h"
#include "verify/kernel_runner.h"

namespace yard::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAfterFailure = std::chrono::seconds(1);

// Indexed by BreakerEvent::Kind.
constexpr struct {
  const base::EventKind* event;
  LogLevel level;
} kKinds[] = {{&base::event::kBreakerOpened, LogLevel::kWarn},
              {&base::event::kBreakerHalfOpen, LogLevel::kInfo},
              {&base::event::kBreakerClosed, LogLevel::kInfo},
              {&base::event::kDeviceLost, LogLevel::kWarn},
              {&base::event::kDeviceBack, LogLevel::kInfo}};

std::string text_of(const BreakerEvent& e) {
  if (e.kind == BreakerEvent::Kind::kDeviceLost || e.kind == BreakerEvent::Kind::kDeviceBack)
    return "Device " + to_string(e);
  if (e.op.empty()) return "Breaker " + to_string(e);
  return fmt::format("Breaker of '{}' for {} '{}': {}", e.kernel,
                     e.op.find('/') != e.op.npos ? "function" : "op", e.op, to_string(e));
}

}  // namespace

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
  // If no thread can be started, breakers do not change with time. Calls work as before.
  woken_.store(false, std::memory_order_release);
}

void Maintenance::work() {
  const Status worked = base::or_out_of_memory([this] {
    woken_.store(false, std::memory_order_release);  // later changes wake it again
    core_.board->advance(Clock::now());
    auto events = core_.board->take_events();
    publish();
    notify(std::move(events));                     // after they are in force
    const auto next = core_.board->next_change();  // a variable, so that the board is unlocked here
    schedule(next);
    schedule(core_.planner.sweep(Clock::now()));
  });
  if (worked.ok()) return;
  base::log_event(LogLevel::kError, "health", "work on breakers ran out of memory; it is repeated");
  thread_.repeat_at(Clock::now() + kAfterFailure);
}

void Maintenance::publish_now() {
  core_.board->advance(Clock::now());
  publish();
  wake();  // for the events
}

void Maintenance::publish() {
  // A call that publishes the board leaves on_change() to this thread.
  if (core_.board->snapshot() == core_.snapshot()->health) return core_.published.catch_up();
  if (const Status s = core_.published.publish_health(); !s.ok())
    base::log(LogLevel::kError, "health",
              fmt::format("breaker states could not be published: {}", s.message()));
}

void Maintenance::schedule(std::optional<Clock::time_point> next) {
  if (!next) return;
  // If a run is scheduled before `next`, that run schedules the next one.
  if (scheduled_ > Clock::now() && scheduled_ <= *next) return;
  scheduled_ = *next;
  thread_.repeat_at(*next);
}

void Maintenance::notify(std::vector<BreakerEvent> events) {
  if (events.empty()) return;
  for (const BreakerEvent& e : events) {
    const auto& [event, level] = kKinds[static_cast<size_t>(e.kind)];
    base::record(
        {.kind = event, .runtime = core_.id, .subject = e.subject, .reason = e.text, .who = e.who});
    if (base::log_enabled("health", level)) base::log(level, "health", text_of(e));
  }
  const auto count = static_cast<int64_t>(events.size());
  if (listeners.empty() || waiting_ + count > int64_t{kBreakerEvents}) return;
  const Status posted = listeners_thread_.post([this, count, events = std::move(events)] {
    for (const BreakerEvent& e : events) listeners.call_all("health", "a listener for breakers", e);
    waiting_ -= count;
  });
  if (!posted.ok()) return base::log(LogLevel::kError, "health", posted.message());
  waiting_ += count;
}

}  // namespace yard::runtime

namespace yard {
namespace {

auto now() { return std::chrono::steady_clock::now(); }

// Returns the key of a backend's implementation of a function, "group/name".
Result<health::Key> function_key(const registry::State& registry, std::string_view function,
                                 std::string_view backend) {
  std::string problem = fmt::format("no backend provides function '{}'", function);
  for (const auto& f : registry.functions) {
    if (f->group + "/" + f->name != function) continue;
    if (f->backend == backend) return functions::health_key(*f);
    problem = fmt::format("backend '{}' does not provide function '{}'", backend, function);
  }
  return Status(Code::kNotFound, problem);
}

Result<health::Key> kernel_key(const registry::State& registry, std::string_view op,
                               std::string_view kernel) {
  if (op.find('/') != op.npos) return function_key(registry, op, kernel);
  const registry::OpRecord* const record = registry.find(op);
  if (record == nullptr) return base::failure(Code::kUnknownOp, "op '{}' is not known", op);
  const registry::Kernel* const found = verification::find_kernel(*record, kernel);
  if (found == nullptr)
    return base::failure(Code::kNotFound, "op '{}' has no kernel '{}'", op, kernel);
  return health::Key{std::string(op), std::string(kernel), found->backend_name, {}};
}

// Runs change(board) for the program. The change is in force when this returns.
template <class F>
void change_board(runtime::Maintenance& maintenance, const F& change) {
  const base::Actor actor("the program");
  change(maintenance.core().board);
  maintenance.publish_now();
}

template <class F>
Status change_breaker(runtime::Maintenance& maintenance, std::string_view op,
                      std::string_view kernel, const F& change) {
  const auto snapshot = maintenance.core().snapshot();
  YARD_ASSIGN_OR_RETURN(const auto key, kernel_key(*snapshot->state, op, kernel));
  change_board(maintenance, [&](auto& board) { change(board, key); });
  return {};
}

}  // namespace

HealthReport Health::report() const {
  const detail::Core& core = maintenance_->core();
  const auto successes = core.successes();
  return core.board->report(successes, now());
}

CanaryReport Health::canaries() const { return canaries_->report(); }

Status Health::open(std::string_view op, std::string_view kernel, std::string_view why) {
  return change_breaker(*maintenance_, op, kernel,
                        [&](auto& board, const auto& key) { board->open(key, why, now()); });
}

Status Health::close(std::string_view op, std::string_view kernel) {
  return change_breaker(*maintenance_, op, kernel,
                        [](auto& board, const auto& key) { board->close(key, now()); });
}

Status Health::reset(std::string_view op, std::string_view kernel) {
  return change_breaker(*maintenance_, op, kernel,
                        [](auto& board, const auto& key) { board->close(key, now(), true); });
}

void Health::device_lost(Device device, std::string_view why) {
  change_board(*maintenance_, [&](auto& board) { board->device_lost(device, why, now()); });
}

void Health::device_back(Device device) {
  change_board(*maintenance_, [&](auto& board) { board->device_back(device, now()); });
}

void Health::record_success(std::string_view backend, uint64_t count) {
  maintenance_->core().board->record_success(backend, count);
}

void Health::record_failure(std::string_view backend, ErrorClass c, std::string_view text) {
  maintenance_->core().board->record_failure(backend, c, text, now());
}

Status Health::set_settings(const BreakerSettings& settings) {
  YARD_RETURN_IF_ERROR(dispatch::set_breakers(maintenance_->core(), settings));
  maintenance_->publish_now();
  return {};
}
BreakerSettings Health::settings() const { return maintenance_->core().board->settings(); }

uint64_t Health::on_event(BreakerListener listener) {
  return maintenance_->listeners.add(std::move(listener));
}
void Health::remove_listener(uint64_t id) { maintenance_->listeners.remove(id); }

}  // namespace yard
