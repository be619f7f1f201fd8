// SPDX-License-Identifier: Apache-2.0
// The slow path of a function call: traces, probes of half-open breakers, and the next implementation after a failure.
#include <fmt/format.h>
#include <yard/detail/function.h>

#include <chrono>
#include <utility>

#include "base/lists.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/nesting.h"
#include "dispatch/scope.h"
#include "health/breaker.h"
#include "provider/function_service.h"
#include "provider/provider_table.h"
#include "select/reasons.h"

namespace yard::detail {

using provider::Implementation;
using provider::ProviderTable;

// What one call has done so far, once it has failed, entered a probe or run a suspect implementation.
struct FunctionStory {
  std::vector<const char*> failed;            // backends
  std::shared_ptr<health::ProbeSlots> probe;  // entered by the implementation that runs
  bool watched = false;  // a success of the one that runs is reported to health

  FunctionStory() = default;
  ~FunctionStory() { leave_probe(ErrorClass::kDeclined); }
  FunctionStory(const FunctionStory&) = delete;
  FunctionStory& operator=(const FunctionStory&) = delete;

  bool has_failed(const FunctionRow& row) const noexcept {
    return base::contains(failed, row.backend);
  }
  // Whether that decided the half-open phase.
  bool leave_probe(ErrorClass outcome) noexcept {
    return probe != nullptr && std::exchange(probe, nullptr)->leave(outcome);
  }
};

void free_story(FunctionStory* story) noexcept { delete story; }

namespace {

constexpr int kThreadLocal = 4;  // our index in ThreadRecord::locals

FunctionStory& story_of(FunctionTry& so_far) {
  if (so_far.story == nullptr) so_far.story = new FunctionStory;
  return *so_far.story;
}

// Why others did not run, if the call is traced. Costs nothing otherwise.
class Notes {
 public:
  explicit Notes(const ThreadHead& thread) noexcept
      : tracer_(thread.scope_state != nullptr ? thread.scope_state->tracer : nullptr) {}
  void add(const Implementation& i, std::string_view what) {
    if (tracer_ == nullptr) return;
    text_ += fmt::format("{}{} {}", text_.empty() ? "" : "; ", i.backend, what);
  }
  void add(const ProviderTable::Entry& e) {
    if (tracer_ == nullptr) return;
    add(*e.implementation, fmt::format("is out: {}: {}", select::reason_name(e.eligibility.reason),
                                       e.eligibility.why()));
  }
  void add(const Implementation& i, const provider::Answer& a) {
    if (tracer_ == nullptr) return;
    add(i, !a.broken.empty() ? "has a broken verifier: " + a.broken
                             : "refuses: " + i.text_of(a.verdict.reason, a.verdict.figures));
  }
  void chosen(const FunctionSite& site, const FunctionArgs& args, const char* backend) const {
    if (tracer_ != nullptr)
      tracer_->add(site.group + "/" + site.name, args.tuple, args.describe, backend, text_);
  }

 private:
  Tracer* const tracer_;
  std::string text_;
};

// One choice.
class Choice {
 public:
  Choice(FunctionSite& site, Guard& guard, ThreadHead& thread, const FunctionArgs& args,
         FunctionTry& so_far, const ProviderTable& table)
      : site_(site),
        guard_(guard),
        thread_(thread),
        args_(args),
        so_far_(so_far),
        table_(table),
        notes_(thread) {}

  const FunctionRow* make() {
    for (const ProviderTable::Entry& e : table_.entries) {
      if (may_run(e)) return take(e);
    }
    return take_original();
  }

 private:
  bool may_run(const ProviderTable::Entry& e) {
    const Implementation& i = *e.implementation;
    if (!e.eligibility.eligible()) return notes_.add(e), false;
    if (so_far_.story != nullptr && so_far_.story->has_failed(i))
      return notes_.add(i, "has failed"), false;
    const provider::Answer a = answer(i);
    if (!a.accepted) return notes_.add(i, a), false;
    if (e.eligibility.probes() != nullptr && !enter_probe(e))
      return notes_.add(i, "is being tried by another call"), false;
    return true;
  }

  provider::Answer answer(const Implementation& i) const {
    provider::Answer a = provider::ask_once(i, thread_, args_);
    if (!a.broken.empty())
      i.broken(a.broken);
    else if (!a.accepted)
      i.refused(a.verdict);
    return a;
  }

  bool enter_probe(const ProviderTable::Entry& e) {
    if (!e.eligibility.probes()->try_enter()) return false;
    story_of(so_far_).probe = e.eligibility.breaker->probes;
    return true;
  }

  const FunctionRow* take(const ProviderTable::Entry& e) {
    const Implementation& i = *e.implementation;
    if (i.suspect.load(std::memory_order_relaxed)) story_of(so_far_).watched = true;
    notes_.chosen(site_, args_, i.backend);
    guard_.move_to_after_reading(static_cast<const FunctionRow*>(&i));
    remember(thread_, site_, i.backend);
    count(thread_, i.ran);
    return &i;
  }

  const FunctionRow* take_original() {
    notes_.chosen(site_, args_, kOriginal);
    remember(thread_, site_, kOriginal);
    count(thread_, table_.original);
    return nullptr;
  }

  FunctionSite& site_;
  Guard& guard_;
  ThreadHead& thread_;
  const FunctionArgs& args_;
  FunctionTry& so_far_;
  const ProviderTable& table_;
  Notes notes_;
};

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

// What the table in force and the scope allow after a failure.
struct Limits {
  bool strict = false;
  std::optional<size_t> fallbacks;
};
Limits limits(const FunctionSite& site, ThreadHead& thread) {
  Limits to;
  {
    Guard guard(thread);
    if (const ProviderTable* table = provider::as_table(protect_table(site, thread, guard)))
      to = {table->strict, table->fallbacks};
  }
  const ScopeState* scope = thread.scope_state;
  if (scope != nullptr && scope->content.policy.strict) to.strict = *scope->content.policy.strict;
  return to;
}

// Whether everything that the call needs is as it was before.
bool untouched(const Thrown& t, const FunctionSite& site, const Implementation& i, Left left) {
  if (left == Left::kNothing) return false;
  if (t.error_class == ErrorClass::kDeclined) return true;
  if (t.error_class != ErrorClass::kTransient && t.error_class != ErrorClass::kFault) return false;
  return left == Left::kEverything || site.repeatable || i.fails_before_writing();
}

bool may_fall_back(const Thrown& t, const FunctionSite& site, const Implementation& i,
                   ThreadHead& thread, Left left, const FunctionTry& so_far) {
  if (!untouched(t, site, i, left)) return false;
  const Limits limit = limits(site, thread);
  const size_t before = so_far.story != nullptr ? so_far.story->failed.size() : 0;
  return !limit.strict && (!limit.fallbacks || before < *limit.fallbacks);
}

void report_failure(const FunctionSite& site, const Implementation& i, const Thrown& t,
                    FunctionTry& so_far) {
  provider::FunctionService* const service = provider::FunctionService::serving();
  if (service == nullptr) return;
  // A function names no device, so none can be marked lost: it is a fault of the implementation.
  const ErrorClass c =
      t.error_class == ErrorClass::kDeviceLost ? ErrorClass::kFault : t.error_class;
  const bool decided = so_far.story != nullptr && so_far.story->leave_probe(c);
  Core& core = service->core();
  const health::BoardUpdate told =
      core.board->fault(provider::health_key(*i.hook), c, t.text, std::chrono::steady_clock::now());
  if (told.suspect && !i.suspect.exchange(true)) provider::update_plain(site);
  if (told.changed || decided || core.board.has_events()) core.health_changed();
}

}  // namespace

const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                   const FunctionArgs& args, FunctionTry& so_far) {
  const ProviderTable* const table = provider::as_table(protect_table(site, thread, guard));
  if (table == nullptr) return remember(thread, site, kOriginal), nullptr;
  return Choice(site, guard, thread, args, so_far, *table).make();
}

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     Left left, FunctionTry& so_far) {
  if (so_far.story != nullptr) so_far.story->watched = false;
  if (thread_is_unwinding()) {
    // The thread is cancelled, which is no failure of the implementation.
    if (so_far.story != nullptr) so_far.story->leave_probe(ErrorClass::kDeclined);
    return false;
  }
  if (static_cast<base::ThreadRecord&>(thread).failed_by_refusal(true)) return false;
  const auto& i = static_cast<const Implementation&>(row);
  const Thrown t = classify();
  report_failure(site, i, t, so_far);
  if (t.error_class == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!may_fall_back(t, site, i, thread, left, so_far)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is tried",
                        i.hook->backend, site.group, site.name, t.text));
  story_of(so_far).failed.push_back(row.backend);
  return true;
}

void function_ended(const FunctionSite& site, const FunctionRow& row,
                    FunctionTry& so_far) noexcept {
  FunctionStory& story = *so_far.story;
  const bool watched = std::exchange(story.watched, false);
  provider::FunctionService* const service = provider::FunctionService::serving();
  // A failure has reset both, and has been reported.
  if ((story.probe == nullptr && !watched) || service == nullptr) return;
  const auto& i = static_cast<const Implementation&>(row);
  try {
    Core& core = service->core();
    const bool decided = story.leave_probe(ErrorClass::kOk);
    if (watched) {
      const health::BoardUpdate told =
          core.board->success(provider::health_key(*i.hook), std::chrono::steady_clock::now());
      if (!told.suspect && i.suspect.exchange(false)) provider::update_plain(site);
    }
    if (decided) core.health_changed();
  } catch (...) {
    // Out of memory: the next success is reported.
  }
}

HazardSlot& deep_slot(ThreadHead& thread, const FunctionSite& function) {
  provider::FunctionService* const service = provider::FunctionService::serving();
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
  // Calls under the master switch record nothing.
  if (site != nullptr && site->table.load(std::memory_order_acquire) == &kFunctionsOff &&
      !decides_for_itself())
    return kOriginal;
  if (t_thread == nullptr || t_thread->functions == nullptr) return "";
  const FunctionCalls& calls = *t_thread->functions;
  if (site == nullptr) return calls.latest.backend != nullptr ? calls.latest.backend : "";
  const FunctionCalls::Last& last = calls.of[site->id % FunctionCalls::kSites];
  return last.site == site->id ? last.backend : "";
}

}  // namespace yard::detail
