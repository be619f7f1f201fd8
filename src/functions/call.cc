// SPDX-License-Identifier: Apache-2.0
// The slow path of function calls: traces, scopes, probes, and what follows a failure.
#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "dispatch/trace.h"
#include "functions/functions.h"

namespace yard::detail {

using functions::Implementation;
using functions::Service;
using functions::Table;

namespace {

constexpr int kThreadLocal = 0;  // index in ThreadRecord::locals

using Backends = std::vector<const char*>;

// If this returns true and the breaker is half-open, the call holds a probe slot.
bool may_run(const Table::Entry& e, ThreadHead& thread, const FunctionArgs& args,
             const Backends& failed) {
  const Implementation& i = *e.implementation;
  if (!e.eligibility.eligible() || base::contains(failed, i.backend)) return false;
  const auto probes = e.eligibility.probes();
  return function_accepts(i, thread, args) && (probes == nullptr || probes->try_enter());
}

void trace(Tracer& tracer, const FunctionSite& site, const ThreadHead& thread,
           const FunctionArgs& args, const Table& table, const Backends& failed, uint32_t chosen,
           const char* backend) {
  std::string note;
  for (uint32_t i = 0; i < chosen; ++i) {
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

// Returns the number of entries if the call runs the default.
uint32_t choose(const Table& table, const FunctionSite& site, ThreadHead& thread,
                const FunctionArgs& args, const Backends& failed) {
  uint32_t at = 0;
  while (at < table.entries.size() && !may_run(table.entries[at], thread, args, failed)) ++at;
  const bool is_default = at == table.entries.size();
  const char* const backend = is_default ? kOriginal : table.entries[at].implementation->backend;
  if (thread.scope_state != nullptr && thread.scope_state->tracer != nullptr)
    trace(*thread.scope_state->tracer, site, thread, args, table, failed, at, backend);
  remember(thread, site, backend);
  if (is_default) count(thread, table.original);
  return at;
}

// Whether inputs are intact, and another try is allowed after `i` and `failures` others.
bool may_try_next(ErrorClass c, const FunctionSite& site, const Implementation& i,
                  const ThreadHead& thread, Left left, size_t failures) {
  const bool intact = left == Left::kEverything || site.repeatable ||
                      (i.record->d.flags & YARD_FUNCTION_FAILS_BEFORE_WRITING) != 0;
  const bool may_pass = c == ErrorClass::kTransient || c == ErrorClass::kFault;
  if (left == Left::kNothing || !(c == ErrorClass::kDeclined || (may_pass && intact))) return false;
  const auto s = Service::serving()->core().snapshot();
  const functions::Situation now{*s, nullptr, {}, thread.scope_state};
  if (now.policy.strict.value_or(false)) return false;
  const policy::FileRules* const file = s->policy->file.get();
  const auto most = file != nullptr ? file->config.settings.max_fallback_attempts : std::nullopt;
  return !most || failures < static_cast<size_t>(*most);
}

void report_failure(const Implementation& i, ErrorClass c, const std::string& text,
                    health::ProbeSlots* probe) {
  // A call of a function names no device that could be marked lost, so treat this as a fault.
  if (c == ErrorClass::kDeviceLost) c = ErrorClass::kFault;
  const bool decided = probe != nullptr && probe->leave(c);
  const health::Key key = functions::health_key(*i.record);
  health::FailedOn on{.kernel = i.record.get()};
  std::vector<health::Successes> successes;
  Service::serving()->add_successes(successes);
  for (const health::Successes& s : successes)
    if (s.op == key.op && s.kernel == key.kernel) on.successes += s.count;
  Core& core = Service::serving()->core();
  const health::BoardUpdate told =
      core.board->fault(key, c, text, std::chrono::steady_clock::now(), on);
  if (told.changed || decided || core.board.has_events()) core.health_changed();
}

// Call this in a catch block. Returns whether to try the next implementation.
bool failed(const FunctionSite& site, const Implementation& i, ThreadHead& thread, Left left,
            size_t failures, health::ProbeSlots* probe) {
  count(thread, i.thrown.id());
  if (site.selection == Selection::kActive) return false;
  // The end of the thread and the refusal of a nested call are not failures of the implementation.
  if (thread_is_unwinding() || static_cast<base::ThreadRecord&>(thread).failed_by_refusal(true)) {
    if (probe != nullptr) probe->leave(ErrorClass::kDeclined);
    return false;
  }
  const ErrorClass c = functions::status_of_exception().error_class();
  const std::string text = base::current_exception_text();
  report_failure(i, c, text, probe);
  if (c == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!may_try_next(c, site, i, thread, left, failures)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is tried",
                        i.record->backend, site.group, site.name, text));
  return true;
}

}  // namespace

bool function_accepts(const FunctionRow& row, const ThreadHead& thread, const FunctionArgs& args) {
  const auto& i = static_cast<const Implementation&>(row);
  const functions::Answer a = functions::ask_once(i, thread, args);
  if (!a.broken.empty())
    i.log_broken_verifier(a.broken);
  else if (!a.accepted())
    function_refused(i, a.verdict);
  return a.accepted();
}

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     Left left) {
  return failed(site, static_cast<const Implementation&>(row), thread, left, 0, nullptr);
}

bool run_function(FunctionSite& site, ThreadHead& thread, const FunctionArgs& args, Left left,
                  const char* failed_before, const void* frame, RunRow run) {
  Backends tried;  // backends that have failed
  if (failed_before != nullptr) tried.push_back(failed_before);
  for (;;) {
    {
      Guard guard(thread, site);
      if (const Table* const table = functions::find_table(site, thread, guard)) {
        const uint32_t at = choose(*table, site, thread, args, tried);
        if (at == table->entries.size()) return false;
        const Implementation& i = *table->entries[at].implementation;
        const auto probe = table->entries[at].eligibility.probes();
        // Keep the table for an implementation that takes a Next and may call the rest of it.
        if (!i.takes_next) guard.move_to_after_reading(static_cast<const FunctionRow*>(&i));
        try {
          run(frame, i, *table, at);
        } catch (...) {
          if (!failed(site, i, thread, left, tried.size(), probe.get())) throw;
          tried.push_back(i.backend);
          continue;
        }
        count(thread, i.succeeded);
        if (probe != nullptr && probe->leave(ErrorClass::kOk))
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

void no_default(const FunctionSite& site) {
  throw Error(Status(Code::kNoKernel,
                     fmt::format("function '{}/{}' has no body, and no backend runs the call; "
                                 "expected call_or() with a default",
                                 site.group, site.name)));
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
  // Calls of quiet functions always run the default and record nothing.
  if (site != nullptr && is_quiet(*site)) return kOriginal;
  if (t_thread == nullptr || t_thread->functions == nullptr) return "";
  const FunctionCalls& calls = *t_thread->functions;
  if (site == nullptr) return calls.of[calls.latest].backend;
  const FunctionCalls::Last& last = calls.of[site->index % FunctionCalls::kSites];
  return last.site == site ? last.backend : "";
}

std::string shown(double number) { return fmt::format("{:.9g}", number); }

std::string shown(std::string_view text) { return base::excerpt(text, 60); }

}  // namespace yard::detail
