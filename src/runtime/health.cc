// SPDX-License-Identifier: Apache-2.0
// Health of yard/health.h: questions to the board of a runtime, and changes that are in force when they return.
#include <fmt/format.h>

#include "base/results.h"
#include "dispatch/policy_changes.h"
#include "functions/table.h"
#include "runtime/maintenance.h"
#include "verify/canary.h"

namespace yard {

using runtime::Maintenance;

namespace {

// The key of a backend's implementation of a function, "group/name".
Result<health::Key> function_key(const dispatch::Snapshot& s, std::string_view function,
                                 std::string_view backend) {
  bool known = false;
  for (const auto& h : s.state->functions) {
    if (h->group + "/" + h->name != function) continue;
    known = true;
    if (h->backend == backend) return functions::health_key(*h);
  }
  if (!known)
    return Status(Code::kNotFound, fmt::format("no backend provides function '{}'", function));
  return Status(Code::kNotFound,
                fmt::format("backend '{}' does not provide function '{}'", backend, function));
}

// A key that stands for all calls of a kernel.
Result<health::Key> kernel_key(const detail::Core& core, std::string_view op,
                               std::string_view kernel) {
  const auto s = core.snapshot();
  if (op.find('/') != op.npos) return function_key(*s, op, kernel);
  const registry::OpRecord* op_record = s->state->find(op);
  if (op_record == nullptr)
    return Status(Code::kUnknownOp, fmt::format("op '{}' is not known", op));
  const auto it = op_record->kernels.find(std::string(kernel));
  if (it == op_record->kernels.end())
    return Status(Code::kNotFound, fmt::format("op '{}' has no kernel '{}'", op, kernel));
  health::Key key;
  key.op = op, key.kernel = kernel, key.backend = it->second->backend_name;
  return key;
}

// A manual override, in force when this returns.
template <class F>
Status change_breaker(Maintenance& maintenance, std::string_view op, std::string_view kernel,
                      const F& change) {
  YARD_ASSIGN_OR_RETURN(const auto key, kernel_key(maintenance.core(), op, kernel));
  change(maintenance.core().board, key);
  maintenance.publish_now();
  return {};
}

}  // namespace

HealthReport Health::report() const {
  const detail::Core& core = maintenance_->core();
  const auto successes = core.successes();
  return core.board->report(successes, std::chrono::steady_clock::now());
}

CanaryReport Health::canaries() const { return canaries_->report(); }

Status Health::open(std::string_view op, std::string_view kernel, std::string_view why) {
  return change_breaker(*maintenance_, op, kernel, [&](health::Board& board, const auto& key) {
    board->open(key, why, std::chrono::steady_clock::now());
  });
}

Status Health::close(std::string_view op, std::string_view kernel) {
  return change_breaker(*maintenance_, op, kernel, [](health::Board& board, const auto& key) {
    board->close(key, std::chrono::steady_clock::now());
  });
}

Status Health::reset(std::string_view op, std::string_view kernel) {
  return change_breaker(*maintenance_, op, kernel, [](health::Board& board, const auto& key) {
    board->close(key, std::chrono::steady_clock::now(), true);
  });
}

void Health::device_lost(Device device, std::string_view why) {
  maintenance_->core().board->device_lost(device, why, std::chrono::steady_clock::now());
  maintenance_->publish_now();
}

void Health::device_back(Device device) {
  maintenance_->core().board->device_back(device, std::chrono::steady_clock::now());
  maintenance_->publish_now();
}

void Health::record_success(std::string_view backend, uint64_t count) {
  maintenance_->core().board->record_success(backend, count);
}

void Health::record_failure(std::string_view backend, ErrorClass error_class,
                            std::string_view text) {
  maintenance_->core().board->record_failure(backend, error_class, text,
                                             std::chrono::steady_clock::now());
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
