// SPDX-License-Identifier: Apache-2.0
// What the inlined call of a function leaves: traces, scopes, probes of half-open breakers, and the next implementation
// after a failure.
#include <fmt/format.h>
#include <yard/detail/function.h>

#include <chrono>

#include "base/lists.h"
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

using Backends = std::vector<const char*>;

// The implementation that a call runs.
struct Choice {
  const Implementation* implementation = nullptr;  // null for the default
  uint32_t at = 0;                                 // its place in the table
  std::shared_ptr<health::ProbeSlots> probe;       // of a half-open breaker, entered for the call
};

// Chooses the entry, unless the call may not run it.
void consider(const Table::Entry& e, ThreadHead& thread, const FunctionArgs& args,
              const Backends& failed, Choice& to) {
  const Implementation& i = *e.implementation;
  if (!e.eligibility.eligible() || base::contains(failed, i.backend)) return;
  const functions::Answer a = functions::ask_once(i, thread, args);
  if (!a.broken.empty()) return i.broken(a.broken);
  if (!a.accepted) return i.refused(a.verdict);
  if (e.eligibility.probes() != nullptr) {
    if (!e.eligibility.probes()->try_enter()) return;
    to.probe = e.eligibility.breaker->probes;
  }
  to.implementation = &i;
}

// Records a traced call, with the reasons why implementations before the chosen one did not run.
void trace(Tracer& tracer, const FunctionSite& site, const ThreadHead& thread,
           const FunctionArgs& args, const Table& table, const Backends& failed,
           const Choice& chosen, const char* backend) {
  std::string note;
  for (uint32_t i = 0; i < chosen.at; ++i) {
    const FunctionCandidate c = functions::explain_entry(table.entries[i], thread, args);
    note += fmt::format("{}{} ", note.empty() ? "" : "; ", c.backend);
    if (base::contains(failed, table.entries[i].implementation->backend))
      note += "has failed";
    else
      note +=
          fmt::format("{}: {}", c.verdict == "refused" ? "refuses" : "is " + c.verdict, c.detail);
  }
  tracer.add(site.group + "/" + site.name, args.show(args.tuple), backend, note);
}

Choice choose(const Table& table, const FunctionSite& site, ThreadHead& thread,
              const FunctionArgs& args, const Backends& failed) {
  Choice to;
  for (; to.at < table.entries.size(); ++to.at) {
    consider(table.entries[to.at], thread, args, failed, to);
    if (to.implementation != nullptr) break;
  }
  const char* const backend = to.implementation != nullptr ? to.implementation->backend : kOriginal;
  if (thread.scope_state != nullptr && thread.scope_state->tracer != nullptr)
    trace(*thread.scope_state->tracer, site, thread, args, table, failed, to, backend);
  remember(thread, site, backend);
  if (to.implementation == nullptr) count(thread, table.original);
  return to;
}

// Whether everything that the call needs is as it was before.
bool untouched(ErrorClass c, const FunctionSite& site, const Implementation& i, Left left) {
  if (left == Left::kNothing) return false;
  if (c == ErrorClass::kDeclined) return true;
  if (c != ErrorClass::kTransient && c != ErrorClass::kFault) return false;
  return left == Left::kEverything || site.repeatable ||
         (i.record->d.flags & YARD_FUNCTION_FAILS_BEFORE_WRITING) != 0;
}

// Whether policy and rules allow another attempt after so many failures before this one.
bool may_try_another(const ThreadHead& thread, size_t failures) {
  const auto s = Service::serving()->core().snapshot();
  std::optional<bool> strict = s->policy->in_force.strict;
  if (const ScopeState* const scope = thread.scope_state)
    if (scope->content.policy.strict) strict = scope->content.policy.strict;
  if (strict.value_or(false)) return false;
  if (s->policy->file == nullptr) return true;
  const auto& most = s->policy->file->config.settings.max_fallback_attempts;
  return !most || failures < static_cast<size_t>(*most);
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

// Tells health how a call ended, and gives back its probe.
void report_failure(const Implementation& i, ErrorClass c, const std::string& text,
                    health::ProbeSlots* probe) {
  // A function names no device, so none can be marked lost: it is a fault of the implementation.
  if (c == ErrorClass::kDeviceLost) c = ErrorClass::kFault;
  const bool decided = probe != nullptr && probe->leave(c);
  Core& core = Service::serving()->core();
  const health::FailedOn on{.successes = successes_of(core, i), .kernel = i.record.get()};
  const health::BoardUpdate told = core.board->fault(functions::health_key(*i.record), c, text,
                                                     std::chrono::steady_clock::now(), on);
  if (told.changed || decided || core.board.has_events()) core.health_changed();
}

// In a catch (...). Returns whether the next implementation is tried, if `failures` calls have failed before.
bool failed(const FunctionSite& site, const Implementation& i, ThreadHead& thread, Left left,
            size_t failures, health::ProbeSlots* probe) {
  count(thread, i.thrown.id());
  if (site.selection == Selection::kActive) return false;
  // Neither the end of the thread nor the refusal of a nested call is a failure of the implementation.
  if (thread_is_unwinding() || static_cast<base::ThreadRecord&>(thread).failed_by_refusal(true)) {
    if (probe != nullptr) probe->leave(ErrorClass::kDeclined);
    return false;
  }
  const ErrorClass c = functions::status_of_exception().error_class();
  const std::string text = base::current_exception_text();
  report_failure(i, c, text, probe);
  if (c == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!untouched(c, site, i, left) || !may_try_another(thread, failures)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is tried",
                        i.record->backend, site.group, site.name, text));
  return true;
}

}  // namespace

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     Left left) {
  return failed(site, static_cast<const Implementation&>(row), thread, left, 0, nullptr);
}

bool run_function(FunctionSite& site, ThreadHead& thread, const FunctionArgs& args, Left left,
                  const char* failed_before, const void* frame, RunRow run) {
  Backends tried;  // that have failed
  if (failed_before != nullptr) tried.push_back(failed_before);
  for (;;) {
    {
      Guard guard(thread, site);
      if (const Table* const table = functions::find_table(site, thread, guard)) {
        const Choice chosen = choose(*table, site, thread, args, tried);
        if (chosen.implementation == nullptr) return false;
        const Implementation& i = *chosen.implementation;
        // A row that takes a Next uses the rest of the table.
        if (!i.takes_next) guard.move_to_after_reading(static_cast<const FunctionRow*>(&i));
        try {
          run(frame, i, *table, chosen.at);
        } catch (...) {
          if (!failed(site, i, thread, left, tried.size(), chosen.probe.get())) throw;
          tried.push_back(i.backend);
          continue;
        }
        count(thread, i.succeeded);
        if (chosen.probe != nullptr && chosen.probe->leave(ErrorClass::kOk))
          Service::serving()->core().health_changed();
        return true;
      }
    }
    if (!attach_function(site)) {
      remember(thread, site, kOriginal);
      return false;
    }
  }
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
  if (site == nullptr) return calls.of[calls.latest].backend;
  const FunctionCalls::Last& last = calls.of[site->index % FunctionCalls::kSites];
  return last.site == site ? last.backend : "";
}

std::string shown(double number) { return fmt::format("{:.9g}", number); }

std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  return fmt::format("\"{}\"{}", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace yard::detail
