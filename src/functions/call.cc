// SPDX-License-Identifier: Apache-2.0
// What the inlined call of a function leaves: traces, scopes, probes of half-open breakers, and the next implementation
// after a failure.
#include <fmt/format.h>
#include <yard/detail/function.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/nesting.h"
#include "dispatch/trace.h"
#include "functions/functions.h"
#include "health/breaker.h"

namespace yard::detail {

using functions::Implementation;
using functions::Service;
using functions::Table;

namespace {

constexpr int kThreadLocal = 4;  // our index in ThreadRecord::locals

// Whether the call may run an entry of its table. Enters the probe of a half-open breaker.
bool may_run(const Table::Entry& e, ThreadHead& thread, const FunctionArgs& args,
             FunctionTry& so_far) {
  const Implementation& i = *e.implementation;
  if (!e.eligibility.eligible() || so_far.has_failed(i.backend)) return false;
  const functions::Answer a = functions::ask_once(i, thread, args);
  if (!a.broken.empty()) i.broken(a.broken);
  if (!a.accepted) {
    if (a.broken.empty()) i.refused(a.verdict);
    return false;
  }
  if (e.eligibility.probes() == nullptr) return true;
  if (!e.eligibility.probes()->try_enter()) return false;
  so_far.probe = e.eligibility.breaker->probes;
  return true;
}

// Records a traced call, with the reasons why implementations before the chosen one did not run.
void trace(Tracer& tracer, const FunctionSite& site, const ThreadHead& thread,
           const FunctionArgs& args, const FunctionTry& so_far, const char* backend) {
  const auto& table = *static_cast<const Table*>(so_far.table);
  std::string note;
  for (uint32_t i = 0; i < so_far.at; ++i) {
    const FunctionCandidate c = functions::explain_entry(table.entries[i], thread, args);
    note += fmt::format("{}{} ", note.empty() ? "" : "; ", c.backend);
    if (so_far.has_failed(table.entries[i].implementation->backend))
      note += "has failed";
    else
      note +=
          fmt::format("{}: {}", c.verdict == "refused" ? "refuses" : "is " + c.verdict, c.detail);
  }
  tracer.add(site.group + "/" + site.name, args.show(args.tuple), backend, note);
}

// Whether that decided the half-open phase.
bool leave_probe_with(FunctionTry& so_far, ErrorClass outcome) noexcept {
  const std::shared_ptr<void> probe = std::exchange(so_far.probe, nullptr);
  return probe != nullptr && static_cast<health::ProbeSlots*>(probe.get())->leave(outcome);
}

// The class of the exception that is being handled.
ErrorClass class_of_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return e.status().error_class();
  } catch (...) {
    return ErrorClass::kFault;
  }
}

// Whether everything that the call needs is as it was before.
bool untouched(ErrorClass c, const FunctionSite& site, const Implementation& i, Left left) {
  if (left == Left::kNothing) return false;
  if (c == ErrorClass::kDeclined) return true;
  if (c != ErrorClass::kTransient && c != ErrorClass::kFault) return false;
  return left == Left::kEverything || site.repeatable ||
         (i.record->d.flags & YARD_FUNCTION_FAILS_BEFORE_WRITING) != 0;
}

// Whether policy and rules allow another attempt.
bool may_try_another(const ThreadHead& thread, const FunctionTry& so_far) {
  if (so_far.failures + 1 >= FunctionTry::kMost) return false;
  const auto s = Service::serving()->core().snapshot();
  std::optional<bool> strict = s->policy->in_force.strict;
  if (const ScopeState* const scope = thread.scope_state)
    if (scope->content.policy.strict) strict = scope->content.policy.strict;
  if (strict.value_or(false)) return false;
  if (s->policy->file == nullptr) return true;
  const auto& most = s->policy->file->config.settings.max_fallback_attempts;
  return !most || so_far.failures < static_cast<size_t>(*most);
}

// The sites of a function share the breaker of an implementation.
uint64_t successes_of(const Core& core, const Implementation& i) {
  const auto snapshot = core.snapshot();
  uint64_t sum = 0;
  if (const auto* const tables = functions::SnapshotTables::of(*snapshot))
    tables->for_each([&](const Implementation& other) {
      if (other.record == i.record) sum += other.successes.total();
    });
  return sum;
}

void report_failure(const Implementation& i, ErrorClass c, const std::string& text,
                    FunctionTry& so_far) {
  // A function names no device, so none can be marked lost: it is a fault of the implementation.
  if (c == ErrorClass::kDeviceLost) c = ErrorClass::kFault;
  const bool decided = leave_probe_with(so_far, c);
  Core& core = Service::serving()->core();
  const health::FailedOn on{.successes = successes_of(core, i), .kernel = i.record.get()};
  const health::BoardUpdate told = core.board->fault(functions::health_key(*i.record), c, text,
                                                     std::chrono::steady_clock::now(), on);
  if (told.changed || decided || core.board.has_events()) core.health_changed();
}

}  // namespace

const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                   const FunctionArgs& args, FunctionTry& so_far) {
  so_far.reported = false;
  const Table* const table = functions::find_table(site, thread, guard);
  so_far.table = table;
  if (table == nullptr) {
    remember(thread, site, kOriginal);
    return nullptr;
  }
  const FunctionRow* row = nullptr;
  for (so_far.at = 0; row == nullptr && so_far.at < table->entries.size(); ++so_far.at)
    if (may_run(table->entries[so_far.at], thread, args, so_far))
      row = table->entries[so_far.at].implementation.get();
  if (row != nullptr) --so_far.at;
  const char* const backend = row != nullptr ? row->backend : kOriginal;
  if (thread.scope_state != nullptr && thread.scope_state->tracer != nullptr)
    trace(*thread.scope_state->tracer, site, thread, args, so_far, backend);
  if (row != nullptr && !row->takes_next) guard.move_to_after_reading(row);
  remember(thread, site, backend);
  if (row == nullptr) count(thread, table->original);
  return row;
}

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     Left left, FunctionTry& so_far) {
  so_far.reported = true;
  const auto& i = static_cast<const Implementation&>(row);
  count(thread, i.thrown.id());
  if (site.selection == Selection::kActive) return false;
  if (thread_is_unwinding()) {
    // The thread ends, which is no failure of the implementation.
    leave_probe_with(so_far, ErrorClass::kDeclined);
    return false;
  }
  if (static_cast<base::ThreadRecord&>(thread).failed_by_refusal(true)) return false;
  const ErrorClass c = class_of_exception();
  const std::string text = base::current_exception_text();
  report_failure(i, c, text, so_far);
  if (c == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!untouched(c, site, i, left) || !may_try_another(thread, so_far)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is tried",
                        i.record->backend, site.group, site.name, text));
  so_far.failed[so_far.failures++] = row.backend;
  return true;
}

void leave_probe(FunctionTry& so_far) noexcept {
  // A failure that health was told of has left its probe already.
  if (leave_probe_with(so_far, so_far.reported ? ErrorClass::kDeclined : ErrorClass::kOk))
    Service::serving()->core().health_changed();
}

HazardSlot& deep_slot(ThreadHead& thread, const FunctionSite& function) {
  Service* const service = Service::serving();
  const uint32_t most =
      service != nullptr ? service->core().max_call_depth.load() : Core::kMaxCallDepth;
  return dispatch::nested_slot(thread, most, function.group, function.name);
}

uint32_t scope_flags(const ThreadHead& thread) noexcept {
  return thread.scope_state != nullptr ? thread.scope_state->flags : 0;
}

FunctionCalls& make_function_calls(ThreadHead& head) {
  auto& thread = static_cast<base::ThreadRecord&>(head);
  base::set_thread_exit_hook(kThreadLocal, [](void* p) { delete static_cast<FunctionCalls*>(p); });
  auto* made = new FunctionCalls;
  thread.locals[kThreadLocal] = made;
  thread.functions = made;
  return *made;
}

const char* last_selected(const FunctionSite* site) noexcept {
  // Calls of quiet functions record nothing.
  if (site != nullptr && is_quiet(*site)) return kOriginal;
  if (t_thread == nullptr || t_thread->functions == nullptr) return "";
  const FunctionCalls& calls = *t_thread->functions;
  if (site == nullptr) return calls.latest.backend != nullptr ? calls.latest.backend : "";
  const FunctionCalls::Last& last = calls.of[site->index % FunctionCalls::kSites];
  return last.site == site ? last.backend : "";
}

std::string shown(double number) { return fmt::format("{:.9g}", number); }

std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  return fmt::format("\"{}\"{}", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace yard::detail
