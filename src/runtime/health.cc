// SPDX-License-Identifier: Apache-2.0
// Health of yard/health.h: questions to the board of a runtime, and changes that are in force when they return.
#include <fmt/format.h>

#include "base/results.h"
#include "dispatch/policy_changes.h"
#include "functions/table.h"
#include "runtime/maintenance.h"
#include "verify/canary.h"

namespace yard {
namespace {

auto now() { return std::chrono::steady_clock::now(); }

// The key of a backend's implementation of a function, "group/name".
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

// A key that stands for all calls of a kernel.
Result<health::Key> kernel_key(const registry::State& registry, std::string_view op,
                               std::string_view kernel) {
  if (op.find('/') != op.npos) return function_key(registry, op, kernel);
  const registry::OpRecord* const record = registry.find(op);
  if (record == nullptr) return Status(Code::kUnknownOp, fmt::format("op '{}' is not known", op));
  const auto it = record->kernels.find(std::string(kernel));
  if (it == record->kernels.end())
    return Status(Code::kNotFound, fmt::format("op '{}' has no kernel '{}'", op, kernel));
  return health::Key{std::string(op), std::string(kernel), it->second->backend_name, {}};
}

// Applies a manual override, change(board, key). It is in force when this returns.
template <class F>
Status change_breaker(runtime::Maintenance& maintenance, std::string_view op,
                      std::string_view kernel, const F& change) {
  const auto snapshot = maintenance.core().snapshot();
  YARD_ASSIGN_OR_RETURN(const auto key, kernel_key(*snapshot->state, op, kernel));
  change(maintenance.core().board, key);
  maintenance.publish_now();
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
  maintenance_->core().board->device_lost(device, why, now());
  maintenance_->publish_now();
}

void Health::device_back(Device device) {
  maintenance_->core().board->device_back(device, now());
  maintenance_->publish_now();
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
