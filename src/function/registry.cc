// SPDX-License-Identifier: Apache-2.0
#include "function/registry.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "function/check.h"
#include "registry/function_sites.h"
#include "select/select.h"

namespace yard::function {
namespace {

#ifdef NDEBUG
constexpr bool kCheckedFromTheStart = false;
#else
constexpr bool kCheckedFromTheStart = true;
#endif

// Tables of the parent may name what a forked child cannot use; they are recreated, and the old ones left behind.
void in_child() {
  for (detail::FunctionSite* site : registry::all_function_sites())
    site->table.store(nullptr, std::memory_order_relaxed);
}

std::atomic<Registry*> g_serving{nullptr};

// Whether this thread is asking probes for a table: what they call is the original's.
thread_local bool t_judging = false;

}  // namespace

Registry::Registry(detail::Core& core, Services services)
    : core_(core), services_(std::move(services)), checked_(kCheckedFromTheStart) {}

void Registry::serve() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, in_child); });
  g_serving.store(this, std::memory_order_release);
  serves_.store(true, std::memory_order_release);
}

Registry* Registry::serving() noexcept { return g_serving.load(std::memory_order_acquire); }
bool Registry::judging() noexcept { return t_judging || select::inside_select(); }

bool Registry::ready(const detail::FunctionSite& site) const {
  const auto there = [this](const std::string& group) {
    return sources_.loaded(group) || loading_here(group);
  };
  if (!there(site.group)) return false;
  for (const detail::FunctionSite* other : registry::function_sites())
    if (other->point == site.point && !there(other->group)) return false;
  return true;
}

void Registry::bring_up_to_date(detail::FunctionSite& site) {
  if (t_judging) return;
  const bool checked = checked_.load(std::memory_order_relaxed);
  struct Judging {
    Judging() noexcept { t_judging = true; }
    ~Judging() { t_judging = false; }
  } judging;
  for (;;) {
    const auto s = core_.snapshot();
    const Situation now{*s, core_.host};
    const detail::FunctionTable* current = site.table.load(std::memory_order_acquire);
    if (now.off()) {
      if (current != &detail::kFunctionsOff) publish(site, nullptr);
    } else if (as_table(current) == nullptr && !ready(site)) {
      // It was called under the master switch, which loads nothing: the next call does.
      if (current != nullptr) withdraw(site);
    } else {
      const Table* before = as_table(current);
      auto next = Table::make(now, site, before, checked);
      if (before == nullptr || !before->same_as(*next)) publish(site, std::move(next));
    }
    // A probe may have changed something, and with it this table.
    if (core_.snapshot()->generation == s->generation) return;
  }
}

void Registry::follow() {
  if (!serves_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(tables_.get().lock);
    for (detail::FunctionSite* site : registry::all_function_sites()) {
      if (site->table.load(std::memory_order_acquire) == nullptr) continue;
      // What nobody can call holds nothing back.
      if (site->declared.load(std::memory_order_acquire) > 0)
        bring_up_to_date(*site);
      else
        withdraw(*site);
    }
  }
  base::reclaimer().collect();
}

void Registry::start_over() {
  sources_.start_over();
  if (!serves_.load(std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(tables_.get().lock);
    for (detail::FunctionSite* site : registry::all_function_sites()) withdraw(*site);
  }
  base::reclaimer().collect();
}

void Registry::environment_says(std::optional<bool> check) {
  if (check) check_verifiers(*check);
}

void Registry::attach(detail::FunctionSite& site) {
  if (!serves_.load(std::memory_order_acquire) || t_judging) return;
  // Under the master switch nothing is loaded.
  if (!core_.snapshot()->policy->in_force.reference_only.value_or(false)) {
    if (select::inside_select()) return;  // where nothing may be published: the original, this time
    load_group(site.group, Ask::kFirst).ignore();
    // Who chooses with others must know who serves them.
    for (const detail::FunctionSite* other : registry::function_sites())
      if (other->point == site.point) load_group(other->group, Ask::kFirst).ignore();
    if (!ready(site))
      return;  // plugins cannot be opened now: the original, and the next call asks again
  }
  const std::lock_guard lock(tables_.get().lock);
  if (site.table.load(std::memory_order_acquire) == nullptr) bring_up_to_date(site);
}

void Registry::check_verifiers(bool on) {
  checked_.store(on, std::memory_order_relaxed);
  follow();
}

}  // namespace yard::function
