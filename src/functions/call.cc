// SPDX-License-Identifier: Apache-2.0
// What the inlined call of a function leaves: traces, scopes, probes of half-open breakers, and the next implementation
// after a failure.
#include <fmt/format.h>
#include <yard/detail/function.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/nesting.h"
#include "dispatch/trace.h"
#include "functions/functions.h"
#include "health/breaker.h"
#include "select/reasons.h"

namespace yard::detail {

using functions::Implementation;
using functions::Service;
using functions::Table;

namespace {

constexpr int kThreadLocal = 4;  // our index in ThreadRecord::locals

// Why others did not run, if the call is traced. Costs nothing otherwise.
class Notes {
 public:
  explicit Notes(const ThreadHead& thread) noexcept
      : tracer_(thread.scope_state != nullptr ? thread.scope_state->tracer : nullptr) {}
  template <class F>
  void add(const Implementation& i, const F& what) {
    if (tracer_ == nullptr) return;
    text_ += fmt::format("{}{} {}", text_.empty() ? "" : "; ", i.backend, what());
  }
  void chosen(const FunctionSite& site, const FunctionArgs& args, const char* backend) const {
    if (tracer_ != nullptr)
      tracer_->add(site.group + "/" + site.name, args.tuple, args.describe, backend, text_);
  }

 private:
  Tracer* const tracer_;
  std::string text_;
};

// Whether the call may run an entry of its table. Enters the probe of a half-open breaker.
bool may_run(const Table::Entry& e, ThreadHead& thread, const FunctionArgs& args,
             FunctionTry& so_far, Notes& notes) {
  const Implementation& i = *e.implementation;
  const auto out = [&](const auto& why) { return notes.add(i, why), false; };
  if (!e.eligibility.eligible())
    return out([&] {
      return fmt::format("is out: {}: {}", select::reason_name(e.eligibility.reason),
                         e.eligibility.why());
    });
  if (std::find(so_far.failed, so_far.failed + so_far.failures, i.backend) !=
      so_far.failed + so_far.failures)
    return out([] { return "has failed"; });
  const functions::Answer a = functions::ask_once(i, thread, args);
  if (!a.broken.empty()) {
    i.broken(a.broken);
    return out([&] { return "has a broken verifier: " + a.broken; });
  }
  if (!a.accepted) {
    i.refused(a.verdict);
    return out([&] { return "refuses: " + i.text_of(a.verdict.reason, a.verdict.figures); });
  }
  if (e.eligibility.probes() == nullptr) return true;
  if (!e.eligibility.probes()->try_enter())
    return out([] { return "is being tried by another call"; });
  so_far.probe = e.eligibility.breaker->probes;
  return true;
}

// Whether that decided the half-open phase.
bool leave_probe_with(FunctionTry& so_far, ErrorClass outcome) noexcept {
  const std::shared_ptr<void> probe = std::exchange(so_far.probe, nullptr);
  return probe != nullptr && static_cast<health::ProbeSlots*>(probe.get())->leave(outcome);
}

struct Thrown {
  ErrorClass error_class = ErrorClass::kFault;
  std::string text;
};
Thrown classify() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.status().error_class(), base::exception_text(e)};
  } catch (...) {
    return {ErrorClass::kFault, base::current_exception_text()};
  }
}

// Whether everything that the call needs is as it was before.
bool untouched(const Thrown& t, const FunctionSite& site, const Implementation& i, Left left) {
  if (left == Left::kNothing) return false;
  if (t.error_class == ErrorClass::kDeclined) return true;
  if (t.error_class != ErrorClass::kTransient && t.error_class != ErrorClass::kFault) return false;
  return left == Left::kEverything || site.repeatable ||
         (i.record->d.flags & YARD_FUNCTION_FAILS_BEFORE_WRITING) != 0;
}

// Whether the table in force and the scope allow another attempt.
bool may_try_another(const FunctionSite& site, ThreadHead& thread, const FunctionTry& so_far) {
  if (so_far.failures + 1 >= FunctionTry::kMost) return false;
  bool strict = false;
  {
    Guard guard(thread);
    if (const Table* const table = functions::find_table(site, thread, guard)) {
      if (table->fallbacks && so_far.failures >= *table->fallbacks) return false;
      strict = table->strict;
    }
  }
  const ScopeState* const scope = thread.scope_state;
  if (scope != nullptr && scope->content.policy.strict) strict = *scope->content.policy.strict;
  return !strict;
}

// The sites of a function share the breaker of an implementation.
uint64_t successes_of(const Core& core, const Implementation& i) {
  const auto snapshot = core.snapshot();
  uint64_t sum = 0;
  const auto* const tables = functions::SnapshotTables::of(*snapshot);
  if (tables == nullptr) return sum;
  for (const auto& table : tables->tables)
    if (table != nullptr)
      for (const Table::Entry& e : table->entries)
        if (e.implementation->record == i.record) sum += e.implementation->successes.total();
  return sum;
}

void report_failure(const Implementation& i, const Thrown& t, FunctionTry& so_far) {
  // A function names no device, so none can be marked lost: it is a fault of the implementation.
  const ErrorClass c =
      t.error_class == ErrorClass::kDeviceLost ? ErrorClass::kFault : t.error_class;
  const bool decided = leave_probe_with(so_far, c);
  Core& core = Service::serving()->core();
  const health::FailedOn on{.successes = successes_of(core, i), .kernel = i.record.get()};
  const health::BoardUpdate told = core.board->fault(functions::health_key(*i.record), c, t.text,
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
  Notes notes(thread);
  for (so_far.at = 0; so_far.at < table->entries.size(); ++so_far.at) {
    const Table::Entry& e = table->entries[so_far.at];
    if (!may_run(e, thread, args, so_far, notes)) continue;
    const Implementation& i = *e.implementation;
    notes.chosen(site, args, i.backend);
    guard.move_to_after_reading(
        i.takes_next ? static_cast<const void*>(so_far.table)
                     : static_cast<const void*>(static_cast<const FunctionRow*>(&i)));
    remember(thread, site, i.backend);
    return &i;
  }
  notes.chosen(site, args, kOriginal);
  remember(thread, site, kOriginal);
  count(thread, table->original);
  return nullptr;
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
  const Thrown t = classify();
  report_failure(i, t, so_far);
  if (t.error_class == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!untouched(t, site, i, left) || !may_try_another(site, thread, so_far)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is tried",
                        i.record->backend, site.group, site.name, t.text));
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
  return dispatch::nested_slot(thread,
                               service != nullptr
                                   ? service->core().max_call_depth.load(std::memory_order_relaxed)
                                   : Core::kMaxCallDepth,
                               function.group, function.name);
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

std::string number_text(double number) { return fmt::format("{:.9g}", number); }

std::string quoted_text(std::string_view text) {
  constexpr size_t kMost = 60;
  return fmt::format("\"{}\"{}", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace yard::detail
