// SPDX-License-Identifier: Apache-2.0
// The long way of a call: commit groups, checks of verifiers, and what happens when an implementation fails.
#include <fmt/format.h>
#include <yard/detail/commit.h>
#include <yard/detail/function.h>

#include <algorithm>
#include <exception>

#include "base/log.h"
#include "base/thread_record.h"
#include "dispatch/scope.h"
#include "function/check.h"
#include "function/table.h"

namespace yard::detail {

using function::Implementation;
using function::Table;

// Of one call; made when the first implementation fails.
struct FunctionFailures {
  std::vector<const char*> backends;
};
void free_failures(FunctionFailures* failures) noexcept { delete failures; }

namespace {

constexpr int kThreadLocal = 4;  // our index in ThreadRecord::locals

std::string title(const FunctionSite& site) {
  return fmt::format("function '{}/{}'", site.group, site.name);
}

const FunctionRow* take(FunctionSite& site, Guard& guard, ThreadHead& thread,
                        const FunctionRow& row) {
  guard.move_to_after_reading(&row);
  remember(thread, site, row.backend);
  count(thread, row.ran);
  return &row;
}

const FunctionRow* take_original(FunctionSite& site, ThreadHead& thread, const Table& table) {
  remember(thread, site, kOriginal);
  count(thread, table.original);
  return nullptr;
}

// What the verifier says, with its promises checked where that is asked for.
function::Answer answer(const Table& table, const Implementation& i, ThreadHead& thread,
                        const FunctionArgs& args) {
  function::Answer a =
      table.checked ? function::ask_checked(i, thread, args) : function::ask_once(i, thread, args);
  if (!a.broken.empty())
    i.broken(a.broken);
  else if (!a.accepted)
    i.refused(a.verdict);
  return a;
}

[[noreturn]] void cannot_follow(const FunctionSite& site, const std::string& chosen,
                                std::string_view why) {
  Status(Code::kNoKernel, ErrorClass::kFault,
         fmt::format("{} must run on '{}', as its commit group has chosen, and that {}",
                     title(site), chosen, why))
      .or_throw();
  std::terminate();  // not reached
}

// The group has chosen before: that one or an error.
const FunctionRow* follow(FunctionSite& site, Guard& guard, ThreadHead& thread,
                          const FunctionArgs& args, const Table& table, const std::string& chosen) {
  if (chosen == kOriginal) return take_original(site, thread, table);
  for (const Table::Entry& e : table.entries) {
    if (e.implementation->hook->backend != chosen) continue;
    if (e.reason != YARD_REASON_NONE) cannot_follow(site, chosen, "is out: " + e.detail);
    const function::Answer a = answer(table, *e.implementation, thread, args);
    if (!a.broken.empty()) cannot_follow(site, chosen, "has a broken verifier: " + a.broken);
    if (!a.accepted)
      cannot_follow(
          site, chosen,
          "refuses the call: " + e.implementation->text_of(a.verdict.reason, a.verdict.figures));
    return take(site, guard, thread, *e.implementation);
  }
  cannot_follow(site, chosen, "does not implement it");
}

bool has_failed(const FunctionTry& so_far, const FunctionRow& row) {
  if (so_far.failures == nullptr) return false;
  const auto& all = so_far.failures->backends;
  return std::find(all.begin(), all.end(), row.backend) != all.end();
}

}  // namespace

const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                   const FunctionArgs& args, FunctionTry& so_far) {
  const Table* table = function::as_table(guard.protect(site.table));
  if (table == nullptr) return nullptr;
  Commit* const group = thread.commit;
  if (group != nullptr)
    if (const std::string* chosen = group->chosen(site.point))
      return follow(site, guard, thread, args, *table, *chosen);
  for (const Table::Entry& e : table->entries) {
    const Implementation& i = *e.implementation;
    if (e.reason != YARD_REASON_NONE || has_failed(so_far, i)) continue;
    if (group != nullptr && e.partial) continue;
    if (!answer(*table, i, thread, args).accepted) continue;
    if (group != nullptr) group->note(site.point, i.backend), so_far.chose = true;
    return take(site, guard, thread, i);
  }
  if (group != nullptr) group->note(site.point, kOriginal), so_far.chose = true;
  return take_original(site, thread, *table);
}

namespace {

struct Failure {
  ErrorClass error_class = ErrorClass::kFault;
  std::string text;
};

Failure classify() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.status().error_class(), e.what()};
  } catch (const std::exception& e) {
    return {ErrorClass::kFault, e.what()};
  } catch (...) {
    return {ErrorClass::kFault, "something that is no std::exception"};
  }
}

bool strict(const FunctionSite& site, const ThreadHead& thread) {
  const ScopeState* scope = thread.scope_state;
  if (scope != nullptr && scope->content.policy.strict) return *scope->content.policy.strict;
  Guard guard(const_cast<ThreadHead&>(thread));
  const Table* table = function::as_table(guard.protect(site.table));
  return table != nullptr && table->strict;
}

// Whether everything is as it was before the call.
bool untouched(const Failure& f, const Implementation& i) {
  if (f.error_class == ErrorClass::kDeclined) return true;
  return i.promises() &&
         (f.error_class == ErrorClass::kTransient || f.error_class == ErrorClass::kFault);
}

}  // namespace

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     bool intact, FunctionTry& so_far) {
  if (thread_is_unwinding()) return false;
  const auto& i = static_cast<const Implementation&>(row);
  const Failure f = classify();
  if (f.error_class == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!intact || !untouched(f, i) || strict(site, thread)) return false;
  if (thread.commit != nullptr) {
    if (!so_far.chose || !thread.commit->take_back(site.point)) return false;
    so_far.chose = false;
  }
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for {}: {}; the next one is asked", i.hook->backend,
                        title(site), f.text));
  if (so_far.failures == nullptr) so_far.failures = new FunctionFailures;
  so_far.failures->backends.push_back(row.backend);
  return true;
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
  if (t_thread == nullptr || t_thread->functions == nullptr) return "";
  const FunctionCalls& calls = *t_thread->functions;
  if (site == nullptr) return calls.latest.backend != nullptr ? calls.latest.backend : "";
  const FunctionCalls::Last& last = calls.of[site->id % FunctionCalls::kSites];
  return last.site == site->id ? last.backend : "";
}

}  // namespace yard::detail
