// SPDX-License-Identifier: Apache-2.0
#include "provider/function_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/lists.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/scope.h"
#include "registry/declarations.h"
#include "select/select.h"

namespace yard::provider {

std::string Source::error() const {
  const Error* last = nullptr;
  for (const Error& e : errors) last = &e;
  return last != nullptr ? last->text : "";
}

Group* Sources::find(std::string_view name) const noexcept {
  for (Group& g : groups_)
    if (g.name == name) return &g;
  return nullptr;
}

Group& Sources::group_locked(std::string_view name) {
  if (Group* g = find(name)) return *g;
  return groups_.append(std::unique_ptr<Group>(new Group{.name = std::string(name)}));
}

Group& Sources::group(std::string_view name) {
  if (Group* g = find(name)) return *g;
  const std::lock_guard lock(writers_.get().lock);
  return group_locked(name);
}

bool Sources::loaded(std::string_view name) const noexcept {
  const Group* g = find(name);
  return g != nullptr && g->loaded.load(std::memory_order_acquire);
}

std::vector<FunctionSource> Sources::list() const {
  std::vector<FunctionSource> to;
  for (const Group& g : groups_)
    for (const Source& s : g.sources)
      to.push_back({g.name, s.name, s.done.load(std::memory_order_acquire),
                    s.attempts.load(std::memory_order_relaxed), s.error()});
  std::stable_sort(to.begin(), to.end(), [](const FunctionSource& a, const FunctionSource& b) {
    return a.group < b.group;
  });
  return to;
}

std::vector<std::string> Sources::groups() const {
  std::vector<std::string> to;
  for (const Group& g : groups_)
    if (!g.sources.empty()) to.push_back(g.name);
  return to;
}

bool Sources::add(std::string_view group, FunctionSetup setup, std::string name) {
  const std::lock_guard lock(writers_.get().lock);
  Group& g = group_locked(group);
  if (name.empty()) {
    size_t count = 0;
    for ([[maybe_unused]] const Source& s : g.sources) ++count;
    name = fmt::format("provider {}", count + 1);
  }
  g.sources.append(
      std::unique_ptr<Source>(new Source{.name = std::move(name), .setup = std::move(setup)}));
  return g.loaded.load(std::memory_order_relaxed);
}

Source* Sources::next(Group& group, const std::vector<const Source*>& asked, bool again, bool all) {
  const std::lock_guard lock(writers_.get().lock);
  bool complete = true;
  for (Source& s : group.sources) {
    if (s.done.load(std::memory_order_relaxed)) continue;
    const bool never = s.attempts.load(std::memory_order_relaxed) == 0;
    if (!never && !again) continue;
    if (!base::contains(asked, &s)) return &s;
    complete &= !never;  // reset() since it was asked
  }
  if (all && complete) group.loaded.store(true, std::memory_order_release);
  return nullptr;
}

void Sources::tried(Source& source, const Status& status) {
  const std::lock_guard lock(writers_.get().lock);
  // A source that keeps failing with the same text needs no more memory.
  if (std::string text = status.ok() ? "" : status.to_string(); text != source.error())
    source.errors.append(
        std::unique_ptr<Source::Error>(new Source::Error{.text = std::move(text)}));
  // The count last: a forked child asks a source again that has been asked and not counted.
  source.done.store(status.ok(), std::memory_order_release);
  source.attempts.fetch_add(1, std::memory_order_release);
}

void Sources::unload(std::string_view group) {
  const std::lock_guard lock(writers_.get().lock);
  if (Group* g = find(group)) g->loaded.store(false, std::memory_order_release);
}

void Sources::reset() {
  const std::lock_guard lock(writers_.get().lock);
  for (Group& g : groups_) {
    g.loaded.store(false, std::memory_order_release);
    for (Source& s : g.sources) {
      s.done.store(false, std::memory_order_release);
      s.attempts.store(0, std::memory_order_relaxed);
    }
  }
}

namespace {

// Tables of the parent may name what a forked child cannot use: they are made again, and the old ones left behind.
void withdraw_in_child() {
  for (detail::FunctionSite* site : registry::all_function_sites())
    site->table.store(nullptr, std::memory_order_relaxed),
        site->scoped.store(nullptr, std::memory_order_relaxed);
}

std::atomic<FunctionService*> g_serving{nullptr};

// Whether this thread is making a table: functions that probes call run the original.
thread_local bool t_making_table = false;

Status would_deadlock(std::string_view what) {
  return Status(
      Code::kWouldDeadlock,
      fmt::format("{} cannot be loaded by the code of a plugin that is being loaded", what));
}

}  // namespace

FunctionService::FunctionService(detail::Core& core, plugin::Loader& loader,
                                 std::function<Status(Changes)> apply)
    : core_(core), loader_(loader), apply_(std::move(apply)) {}

void FunctionService::serve() {
  base::at_fork_in_child(withdraw_in_child);
  g_serving.store(this, std::memory_order_release);
  serves_.store(true, std::memory_order_release);
}

FunctionService* FunctionService::serving() noexcept {
  return g_serving.load(std::memory_order_acquire);
}
bool FunctionService::selecting() noexcept { return t_making_table || select::inside_select(); }

// ---- Groups ----

// This thread's turn to load a group. Calls that it makes meanwhile use what has been registered so far.
class FunctionService::GroupLoad {
 public:
  // Waits for another thread that loads it. If this thread is loading another group, for at most a second: the provider of
  // that one may be waiting for this thread.
  GroupLoad(base::OwnedPerProcess<Loads>& loads, const Group& group, bool wait = true)
      : loads_(loads), group_(group), outer_(t_innermost) {
    Loads& l = loads_.get();
    std::unique_lock lock(l.lock);
    const auto is_free = [&] { return !base::contains(l.groups, &group_); };
    if (wait && outer_ == nullptr) l.ended.wait(lock, is_free);
    if (wait && outer_ != nullptr) l.ended.wait_for(lock, std::chrono::seconds(1), is_free);
    begun_ = is_free();
    if (!begun_) return;
    l.groups.push_back(&group_);
    t_innermost = this;
  }
  ~GroupLoad() {
    if (!begun_) return;
    t_innermost = outer_;
    Loads& l = loads_.get();
    const std::lock_guard lock(l.lock);
    std::erase(l.groups, &group_);
    l.ended.notify_all();
  }
  GroupLoad(const GroupLoad&) = delete;
  GroupLoad& operator=(const GroupLoad&) = delete;
  bool begun() const noexcept { return begun_; }

  static bool is_here(std::string_view group) noexcept {
    for (const GroupLoad* l = t_innermost; l != nullptr; l = l->outer_)
      if (l->group_.name == group) return true;
    return false;
  }

 private:
  static thread_local constinit GroupLoad* t_innermost;
  base::OwnedPerProcess<Loads>& loads_;
  const Group& group_;
  GroupLoad* const outer_;
  bool begun_ = false;
};
thread_local constinit FunctionService::GroupLoad* FunctionService::GroupLoad::t_innermost =
    nullptr;

Status FunctionService::ask_source(const Group& group, Source& source) {
  Status status;
  try {
    Changes changes;
    status = source.setup(changes);
    if (status.ok()) status = apply_(std::move(changes));
  } catch (const Error& e) {
    status = e.status();
  } catch (...) {
    status = Status(Code::kKernelFailed, "it threw: " + base::current_exception_text());
  }
  sources_.tried(source, status);
  if (status.ok()) return {};
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Provider '{}' of group '{}' failed: {}", source.name, group.name,
                        status.to_string()));
  return std::move(status).note(
      fmt::format("provider '{}' of group '{}'", source.name, group.name));
}

Status FunctionService::ask_sources(Group& group, bool again) {
  const bool opened = loader_.need(PluginOffer::kGroup, group.name);
  Status first;
  std::vector<const Source*> asked;
  // A source may add another.
  while (Source* source = sources_.next(group, asked, again, opened)) {
    asked.push_back(source);
    if (Status s = ask_source(group, *source); !s.ok() && first.ok()) first = std::move(s);
  }
  return opened ? first : would_deadlock("plugins");
}

Status FunctionService::load_group(std::string_view name, Ask ask) {
  if (GroupLoad::is_here(name)) return {};
  Group& group = sources_.group(name);
  const auto enough = [&] { return ask == Ask::kFirst && group.loaded.load(); };
  if (enough()) return {};
  if (plugin::Loader::inside()) return would_deadlock("groups of functions");
  const GroupLoad load(loads_, group);
  if (!load.begun())
    return Status(Code::kWouldDeadlock,
                  fmt::format("group '{}' is being loaded by another thread, whose provider may be "
                              "waiting for this one",
                              group.name));
  return enough() ? Status() : ask_sources(group, ask == Ask::kAgain);
}

void FunctionService::add_provider(std::string group, FunctionSetup setup, std::string name) {
  if (sources_.add(group, std::move(setup), std::move(name))) late_provider(group);
}

void FunctionService::late_provider(std::string_view name) {
  if (GroupLoad::is_here(name)) return;  // ask_sources() comes to this one
  if (!plugin::Loader::inside()) return load_group(name, Ask::kLate).ignore();
  // A thread that loads the group may wait for the loader, and so for this thread.
  Group& group = sources_.group(name);
  if (const GroupLoad load(loads_, group, false); load.begun())
    return ask_sources(group, false).ignore();
  // The next call asks it.
  sources_.unload(name);
  if (!serves_.load(std::memory_order_acquire)) return;
  const std::lock_guard tables(tables_.get().lock);
  for (detail::FunctionSite* site : registry::all_function_sites())
    if (site->group == name) withdraw(*site);
}

std::vector<std::string> FunctionService::known_groups() const {
  std::set<std::string> names;
  for (std::string& name : sources_.groups()) names.insert(std::move(name));
  for (const detail::FunctionSite* site : registry::function_sites()) names.insert(site->group);
  for (const auto& hook : core_.snapshot()->state->functions) names.insert(hook->group);
  return {names.begin(), names.end()};
}

Status FunctionService::load(std::string_view group) {
  const auto is_known = [&](const std::vector<std::string>& names) {
    return base::contains(names, group);
  };
  if (!is_known(known_groups())) {
    // A plugin that has not been opened may serve it.
    if (!loader_.need(PluginOffer::kGroup, group)) return would_deadlock("plugins");
    if (const auto names = known_groups(); !is_known(names)) {
      std::string text = fmt::format("no function of group {} is declared or provided{}",
                                     base::excerpt(group), base::did_you_mean(group, names));
      for (const std::string& line : loader_.refused_for(PluginOffer::kGroup, group))
        text += "\n  " + line;
      return Status(Code::kNotFound, std::move(text));
    }
  }
  return load_group(group, Ask::kAgain);
}

// ---- Tables ----

bool FunctionService::ready(const detail::FunctionSite& site) const {
  return sources_.loaded(site.group) || GroupLoad::is_here(site.group);
}

namespace {

// For the scope that this thread is in.
bool has_scoped_table(const detail::FunctionSite& site) {
  base::ThreadRecord& thread = base::this_thread();
  base::Guard guard(thread);
  return detail::scoped_table(site, thread, guard) != nullptr;
}

struct MakingTable : base::InsidePlugin {
  MakingTable() noexcept { t_making_table = true; }
  ~MakingTable() { t_making_table = false; }
};

}  // namespace

void FunctionService::bring_up_to_date(detail::FunctionSite& site) {
  if (t_making_table) return;
  const MakingTable making;
  for (;;) {
    const auto s = core_.snapshot();
    const Situation now(*s, core_.host);
    const detail::FunctionTable* current = site.table.load(std::memory_order_acquire);
    if (now.off()) {
      if (current != &detail::kFunctionsOff) publish(site, nullptr);
    } else if (as_table(current) == nullptr && !ready(site)) {
      // It was called under the master switch, which loads nothing: the next call does.
      if (current != nullptr) withdraw(site);
    } else {
      const ProviderTable* before = as_table(current);
      auto next = ProviderTable::make(now, site, before);
      if (before == nullptr || !before->same_as(*next)) publish(site, std::move(next));
    }
    // A probe may have changed the registry, and with it this table.
    if (core_.snapshot()->generation == s->generation) return;
  }
}

void FunctionService::make_scoped(detail::FunctionSite& site, const detail::ScopeState& scope) {
  if (t_making_table || has_scoped_table(site)) return;
  const MakingTable making;
  for (;;) {
    const auto s = core_.snapshot();
    const Situation now(*s, core_.host, &scope.content.policy);
    std::shared_ptr<const ProviderTable> made;
    if (!now.off())
      made = ProviderTable::make(now, site, as_table(site.table.load(std::memory_order_acquire)));
    if (core_.snapshot()->generation != s->generation) continue;
    return publish(site, scope.providers, std::move(made));
  }
}

template <class F>
bool FunctionService::with_tables(const F& f) {
  constexpr auto kLongestWait = std::chrono::seconds(1);
  {
    // Not by the steady clock: pthread_mutex_clocklock() is unknown to the thread sanitizer of gcc 12.
    std::unique_lock lock(tables_.get().lock, std::chrono::system_clock::now() + kLongestWait);
    if (!lock) {
      behind_.store(true);
      // Who held it may not have seen that.
      if (!lock.try_lock()) return false;
    }
    f();
  }
  if (!t_making_table && behind_.exchange(false)) follow();
  return true;
}

void FunctionService::follow() {
  if (!serves_.load(std::memory_order_acquire)) return;
  with_tables([&] {
    for (detail::FunctionSite* site : registry::all_function_sites()) {
      withdraw_scoped(*site);
      if (site->table.load(std::memory_order_acquire) == nullptr) continue;
      // A function that cannot be called any more keeps no plugin loaded.
      if (site->declared.load(std::memory_order_acquire) > 0)
        bring_up_to_date(*site);
      else
        withdraw(*site);
    }
  });
  base::reclaimer().collect();
}

void FunctionService::reset() {
  sources_.reset();
  if (!serves_.load(std::memory_order_acquire)) return;
  with_tables([&] {
    for (detail::FunctionSite* site : registry::all_function_sites()) withdraw(*site);
  });
  base::reclaimer().collect();
}

void FunctionService::attach(detail::FunctionSite& site) {
  if (!serves_.load(std::memory_order_acquire) || t_making_table) return;
  const detail::ScopeState* const scope = detail::provider_scope_of(base::this_thread());
  if (scope != nullptr && !scope->problem.ok()) throw Error(scope->problem);
  if (scope != nullptr && has_scoped_table(site)) return;
  // Under the master switch nothing is loaded.
  if (!Situation(*core_.snapshot(), nullptr, scope != nullptr ? &scope->content.policy : nullptr)
           .off()) {
    // Inside a selection nothing may be published: this call runs the original.
    if (select::inside_select()) return;
    load_group(site.group, Ask::kFirst).ignore();
    // Plugins cannot be opened now: this call runs the original, and the next one asks again.
    if (!ready(site)) return;
  }
  // If that takes long in another thread, this call runs the original.
  with_tables([&] {
    // Also in a scope, which takes over its implementations and their counters.
    if (site.table.load(std::memory_order_acquire) == nullptr) bring_up_to_date(site);
    if (scope != nullptr) make_scoped(site, *scope);
  });
}

}  // namespace yard::provider
