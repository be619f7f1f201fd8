// SPDX-License-Identifier: Apache-2.0
// The long way of a call: commit groups, checks of verifiers, traces, and who is tried when an implementation has
// failed or is half-open.
#include <fmt/format.h>
#include <yard/detail/commit.h>
#include <yard/detail/function.h>

#include <algorithm>

#include "base/thread_record.h"
#include "dispatch/scope.h"
#include "dispatch/tracer.h"
#include "function/check.h"
#include "function/registry.h"
#include "function/story.h"
#include "function/table.h"

namespace yard::detail {

using function::Implementation;
using function::Table;

namespace {

constexpr int kThreadLocal = 4;  // our index in ThreadRecord::locals

// Why others did not run, where somebody traces the call. Costs nothing otherwise.
class Notes {
 public:
  explicit Notes(const ThreadHead& thread) noexcept
      : tracer_(thread.scope_state != nullptr ? thread.scope_state->tracer : nullptr) {}
  bool wanted() const noexcept { return tracer_ != nullptr; }
  void add(const Implementation& i, std::string_view what) {
    if (tracer_ == nullptr) return;
    text_ += fmt::format("{}{} {}", text_.empty() ? "" : "; ", i.backend, what);
  }
  void add(const Table::Entry& e) {
    if (tracer_ == nullptr) return;
    add(*e.implementation,
        fmt::format("is out: {}: {}", function::reason_label(e.reason), e.detail));
  }
  void add(const Implementation& i, const function::Answer& a) {
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

[[noreturn]] void cannot_follow(const FunctionSite& site, const std::string& chosen,
                                std::string_view why) {
  throw Error(
      Status(Code::kNoKernel, ErrorClass::kFault,
             fmt::format("function '{}/{}' must run on '{}', as its commit group has chosen, {}",
                         site.group, site.name, chosen, why)));
}

// There is no table to choose from: a commit group has chosen the original, or it is an error.
void choose_without_table(const FunctionSite& site, ThreadHead& thread, bool off) {
  remember(thread, site, kOriginal);
  Commit* const group = thread.commit;
  if (group == nullptr) return;
  const std::string* const chosen = group->chosen(site.point);
  if (chosen != nullptr && *chosen != kOriginal)
    cannot_follow(
        site, *chosen,
        off ? "and functions are switched off: by YARD_DISABLE or a policy that is "
              "reference_only"
            : "and backends cannot be looked for now: a plugin is being loaded, or asked");
  // Whoever is asked about candidates chooses nothing for those who ask.
  if (chosen == nullptr && (off || !function::Registry::judging()))
    group->note(site.point, kOriginal);
}

// One choice.
class Choice {
 public:
  Choice(FunctionSite& site, Guard& guard, ThreadHead& thread, const FunctionArgs& args,
         FunctionTry& so_far, const Table& table)
      : site_(site),
        guard_(guard),
        thread_(thread),
        args_(args),
        so_far_(so_far),
        table_(table),
        notes_(thread) {}

  const FunctionRow* make() {
    Commit* const group = thread_.commit;
    if (group != nullptr)
      if (const std::string* chosen = group->chosen(site_.point)) return follow(*chosen);
    for (const Table::Entry& e : table_.entries) {
      if (!may_run(e)) continue;
      if (group != nullptr)
        group->note(site_.point, e.implementation->backend), so_far_.chose = true;
      return take(e);
    }
    if (group != nullptr) group->note(site_.point, kOriginal), so_far_.chose = true;
    return take_original();
  }

 private:
  bool may_run(const Table::Entry& e) {
    const Implementation& i = *e.implementation;
    if (e.reason != YARD_REASON_NONE) return notes_.add(e), false;
    if (so_far_.story != nullptr && so_far_.story->has_failed(i))
      return notes_.add(i, "has failed"), false;
    if (thread_.commit != nullptr && e.partial)
      return notes_.add(i, "cannot run all functions that choose together"), false;
    const function::Answer a = answer(i);
    if (!a.accepted) return notes_.add(i, a), false;
    // One at a time tries who is half-open.
    if (e.probes() != nullptr && !enter(e))
      return notes_.add(i, "is being tried by another call"), false;
    return true;
  }

  // What the verifier says, with its promises checked where that is asked for.
  function::Answer answer(const Implementation& i) const {
    function::Answer a = table_.checked ? function::ask_checked(i, thread_, args_)
                                        : function::ask_once(i, thread_, args_);
    if (!a.broken.empty())
      i.broken(a.broken);
    else if (!a.accepted)
      i.refused(a.verdict);
    return a;
  }

  bool enter(const Table::Entry& e) {
    if (!e.probes()->try_enter()) return false;
    function::story_of(so_far_).probe = e.breaker->probes;
    return true;
  }

  const FunctionRow* take(const Table::Entry& e) {
    const Implementation& i = *e.implementation;
    if (i.suspect.load(std::memory_order_relaxed)) function::story_of(so_far_).watched = true;
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

  // The group has chosen before: that one or an error. Nothing changes midway, so a breaker that has opened since
  // does not count.
  const FunctionRow* follow(const std::string& chosen) {
    if (chosen == kOriginal) return take_original();
    for (const Table::Entry& e : table_.entries) {
      const Implementation& i = *e.implementation;
      if (i.hook->backend != chosen) continue;
      if (e.reason != YARD_REASON_NONE && !e.breaker_text())
        cannot_follow(chosen, "is out: " + e.detail);
      const function::Answer a = answer(i);
      if (!a.broken.empty()) cannot_follow(chosen, "has a broken verifier: " + a.broken);
      if (!a.accepted)
        cannot_follow(chosen,
                      "refuses the call: " + i.text_of(a.verdict.reason, a.verdict.figures));
      if (e.probes() != nullptr) enter(e);
      return take(e);
    }
    cannot_follow(chosen, "does not implement it");
  }

  [[noreturn]] void cannot_follow(const std::string& chosen, std::string_view why) const {
    detail::cannot_follow(site_, chosen, fmt::format("and that {}", why));
  }

  FunctionSite& site_;
  Guard& guard_;
  ThreadHead& thread_;
  const FunctionArgs& args_;
  FunctionTry& so_far_;
  const Table& table_;
  Notes notes_;
};

}  // namespace

const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                   const FunctionArgs& args, FunctionTry& so_far) {
  const FunctionTable* const t = guard.protect(site.table);
  const Table* const table = function::as_table(t);
  if (table == nullptr) return choose_without_table(site, thread, t != nullptr), nullptr;
  return Choice(site, guard, thread, args, so_far, *table).make();
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
  // Calls leave no trace then.
  if (site != nullptr && site->table.load(std::memory_order_acquire) == &kFunctionsOff)
    return kOriginal;
  if (t_thread == nullptr || t_thread->functions == nullptr) return "";
  const FunctionCalls& calls = *t_thread->functions;
  if (site == nullptr) return calls.latest.backend != nullptr ? calls.latest.backend : "";
  const FunctionCalls::Last& last = calls.of[site->id % FunctionCalls::kSites];
  return last.site == site->id ? last.backend : "";
}

}  // namespace yard::detail
