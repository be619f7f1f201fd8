// SPDX-License-Identifier: Apache-2.0
// How an implementation did: what health is told, and whether the call goes on with the next one.
#include <fmt/format.h>
#include <yard/detail/commit.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/thread_record.h"
#include "dispatch/scope.h"
#include "function/registry.h"
#include "function/story.h"

namespace yard::detail {

using function::Implementation;
using function::Table;

void free_story(FunctionStory* story) noexcept { delete story; }

namespace {

struct Thrown {
  ErrorClass error_class = ErrorClass::kFault;
  std::string text;
};

Thrown classify() {
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

// What the table in force says about falling back.
struct Limits {
  bool strict = false;
  std::optional<size_t> fallbacks;
};
Limits limits(const FunctionSite& site, ThreadHead& thread) {
  Limits to;
  {
    Guard guard(thread);
    if (const Table* table = function::as_table(guard.protect(site.table)))
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
  return left == Left::kEverything || site.repeatable || i.promises();
}

bool may_go_on(const Thrown& t, const FunctionSite& site, const Implementation& i,
               ThreadHead& thread, Left left, FunctionTry& so_far) {
  if (!untouched(t, site, i, left)) return false;
  const Limits limit = limits(site, thread);
  const size_t before = so_far.story != nullptr ? so_far.story->failed.size() : 0;
  if (limit.strict || (limit.fallbacks && before >= *limit.fallbacks)) return false;
  if (thread.commit == nullptr) return true;
  if (!so_far.chose || !thread.commit->take_back(site.point)) return false;
  so_far.chose = false;
  return true;
}

// Calls take the short way again, or do so no more.
void settle_way(const FunctionSite& site) {
  base::ThreadRecord& thread = base::this_thread();
  Guard guard(thread);
  if (const Table* table = function::as_table(guard.protect(site.table))) table->settle_way();
}

void tell_failure(const FunctionSite& site, const Implementation& i, const Thrown& t,
                  FunctionTry& so_far) {
  function::Registry* const registry = function::Registry::serving();
  if (registry == nullptr) return;
  // Which device was lost nobody can say of a function: the implementation has failed.
  const ErrorClass c =
      t.error_class == ErrorClass::kDeviceLost ? ErrorClass::kFault : t.error_class;
  bool decided = false;
  if (so_far.story != nullptr && so_far.story->probe != nullptr) {
    decided = so_far.story->probe->leave(c);
    so_far.story->probe.reset();
  }
  Core& core = registry->core();
  const health::BoardUpdate update =
      core.board.fault(function::health_key(*i.hook), c, t.text, std::chrono::steady_clock::now());
  if (update.watched && !i.suspect.exchange(true)) settle_way(site);
  if (update.changed || decided || core.board.has_events()) core.health_moved();
}

}  // namespace

bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                     Left left, FunctionTry& so_far) {
  if (so_far.story != nullptr) so_far.story->watched = false;
  if (thread_is_unwinding()) {
    // A thread that is cancelled says nothing about anybody.
    if (so_far.story != nullptr && so_far.story->probe != nullptr)
      std::exchange(so_far.story->probe, nullptr)->leave(ErrorClass::kDeclined);
    return false;
  }
  const auto& i = static_cast<const Implementation&>(row);
  const Thrown t = classify();
  tell_failure(site, i, t, so_far);
  if (t.error_class == ErrorClass::kCaller) return false;
  count(thread, i.failures.id());
  if (!may_go_on(t, site, i, thread, left, so_far)) return false;
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Backend '{}' failed for function '{}/{}': {}; the next one is asked",
                        i.hook->backend, site.group, site.name, t.text));
  function::story_of(so_far).failed.push_back(row.backend);
  return true;
}

void function_ended(const FunctionSite& site, const FunctionRow& row,
                    FunctionTry& so_far) noexcept {
  FunctionStory& story = *so_far.story;
  const bool tried = story.probe != nullptr, watched = std::exchange(story.watched, false);
  function::Registry* const registry = function::Registry::serving();
  if ((!tried && !watched) || registry == nullptr) return;  // it has failed, and that is told
  const auto& i = static_cast<const Implementation&>(row);
  try {
    Core& core = registry->core();
    bool decided = false;
    if (tried) decided = std::exchange(story.probe, nullptr)->leave(ErrorClass::kOk);
    if (watched) {
      core.board.success(function::health_key(*i.hook), std::chrono::steady_clock::now());
      i.suspect.store(false);
      settle_way(site);
    }
    if (decided) core.health_moved();
  } catch (...) {
    // No memory to tell it: the next success does.
  }
}

}  // namespace yard::detail
