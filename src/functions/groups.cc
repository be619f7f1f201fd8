// SPDX-License-Identifier: Apache-2.0
// Groups of functions, which are loaded on first use: the providers of the program and the plugins that serve the group. One
// thread at a time loads a group.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "functions/declarations.h"
#include "functions/functions.h"

namespace yard::functions {
namespace {

Status would_deadlock(std::string_view what) {
  return Status(
      Code::kWouldDeadlock,
      fmt::format("{} cannot be loaded by the code of a plugin that is being loaded", what));
}

}  // namespace

// This thread's turn to load a group. Calls that it makes meanwhile use what has been registered so far.
class Service::GroupLoad {
 public:
  // Waits for another thread that loads it. If this thread is loading another group, for at most a second: the provider of
  // that one may be waiting for this thread.
  GroupLoad(Service& service, Group& group, bool wait = true)
      : service_(service), group_(group), outer_(t_innermost) {
    std::unique_lock lock(service_.lock_);
    const auto is_free = [&] { return !group_.loading; };
    if (wait && outer_ == nullptr) service_.loaded_.wait(lock, is_free);
    if (wait && outer_ != nullptr)
      service_.loaded_.wait_for(lock, std::chrono::seconds(1), is_free);
    begun_ = is_free();
    if (!begun_) return;
    group_.loading = true;
    t_innermost = this;
  }
  ~GroupLoad() {
    if (!begun_) return;
    t_innermost = outer_;
    const std::lock_guard lock(service_.lock_);
    group_.loading = group_.early = false;
    service_.loaded_.notify_all();
  }
  GroupLoad(const GroupLoad&) = delete;
  GroupLoad& operator=(const GroupLoad&) = delete;
  bool begun() const noexcept { return begun_; }

  // The group, if this thread is loading it.
  static Group* find(std::string_view name) noexcept {
    for (const GroupLoad* l = t_innermost; l != nullptr; l = l->outer_)
      if (l->group_.name == name) return &l->group_;
    return nullptr;
  }

 private:
  static thread_local constinit GroupLoad* t_innermost;
  Service& service_;
  Group& group_;
  GroupLoad* const outer_;
  bool begun_ = false;
};
thread_local constinit Service::GroupLoad* Service::GroupLoad::t_innermost = nullptr;

Group& Service::group(std::string_view name) {
  const std::lock_guard lock(lock_);
  if (const auto it = groups_.find(name); it != groups_.end()) return *it->second;
  auto made = std::make_unique<Group>();
  made->name = name;
  return *groups_.emplace(name, std::move(made)).first->second;
}

bool Service::in_use(std::string_view name) const {
  const std::lock_guard lock(lock_);
  const auto it = groups_.find(name);
  return it != groups_.end() && it->second->loaded;
}

bool Service::has_tables(std::string_view name) const {
  const std::lock_guard lock(lock_);
  const auto it = groups_.find(name);
  return it != groups_.end() && (it->second->loaded || it->second->early);
}

Source* Service::next_source(Group& group, const std::vector<const Source*>& asked, bool again,
                             bool all) {
  const std::lock_guard lock(lock_);
  bool complete = true;
  for (const auto& s : group.sources) {
    if (s->done || (s->attempts > 0 && !again)) continue;
    if (std::ranges::find(asked, s.get()) == asked.end()) return s.get();
    complete &= s->attempts > 0;  // else reset() has come since it was asked
  }
  if (all && complete) group.loaded = true;
  return nullptr;
}

Status Service::ask_source(const Group& group, Source& source) {
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
  {
    const std::lock_guard lock(lock_);
    source.done = status.ok();
    source.error = status.ok() ? "" : status.to_string();
    ++source.attempts;
  }
  if (status.ok()) return {};
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Provider '{}' of group '{}' failed: {}", source.name, group.name,
                        status.to_string()));
  return std::move(status).note(
      fmt::format("provider '{}' of group '{}'", source.name, group.name));
}

Status Service::ask_sources(Group& group, bool again) {
  const bool opened = loader_.need(PluginOffer::kGroup, group.name);
  Status first;
  std::vector<const Source*> asked;
  // A source may add another.
  while (Source* source = next_source(group, asked, again, opened)) {
    asked.push_back(source);
    if (Status s = ask_source(group, *source); !s.ok() && first.ok()) first = std::move(s);
  }
  return opened ? first : would_deadlock("plugins");
}

Status Service::load_group(std::string_view name, Ask ask) {
  if (Group* const here = GroupLoad::find(name)) {
    const std::lock_guard lock(lock_);
    here->early = true;
    return {};
  }
  const auto enough = [&] { return ask == Ask::kFirst && in_use(name); };
  if (enough()) return {};
  if (plugin::Loader::inside()) return would_deadlock("groups of functions");
  Group& g = group(name);
  const GroupLoad load(*this, g);
  if (!load.begun())
    return Status(Code::kWouldDeadlock,
                  fmt::format("group '{}' is being loaded by another thread, whose provider may be "
                              "waiting for this one",
                              g.name));
  return enough() ? Status() : ask_sources(g, ask == Ask::kAgain);
}

void Service::add_provider(const std::string& name, FunctionSetup setup, std::string of) {
  Group& g = group(name);
  bool late;
  {
    const std::lock_guard lock(lock_);
    auto made = std::make_unique<Source>();
    made->name = !of.empty() ? std::move(of) : fmt::format("provider {}", g.sources.size() + 1);
    made->setup = std::move(setup);
    g.sources.push_back(std::move(made));
    late = g.loaded;
  }
  if (late) late_provider(name);
}

void Service::late_provider(std::string_view name) {
  if (GroupLoad::find(name) != nullptr) return;  // ask_sources() comes to this one
  if (!plugin::Loader::inside()) return load_group(name, Ask::kLate).ignore();
  // A thread that loads the group may wait for the loader, and so for this thread.
  Group& g = group(name);
  if (const GroupLoad load(*this, g, false); load.begun()) return ask_sources(g, false).ignore();
  {
    // The next call asks it.
    const std::lock_guard lock(lock_);
    g.loaded = false;
  }
  if (serves_.load(std::memory_order_acquire)) republish();
}

std::vector<std::string> Service::known_groups() const {
  std::set<std::string> names;
  for (const detail::FunctionSite* site : declared_sites()) names.insert(site->group);
  for (const auto& f : core_.snapshot()->state->functions) names.insert(f->group);
  const std::lock_guard lock(lock_);
  for (const auto& [name, g] : groups_)
    if (!g->sources.empty()) names.insert(name);
  return {names.begin(), names.end()};
}

Status Service::load(std::string_view group) {
  const auto is_known = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, group) != names.end();
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

std::vector<FunctionSource> Service::sources() const {
  std::vector<FunctionSource> to;
  const std::lock_guard lock(lock_);
  for (const auto& [name, g] : groups_)
    for (const auto& s : g->sources)
      to.push_back({name, s->name, s->done, s->attempts, s->done ? "" : s->error});
  return to;
}

void Service::reset() {
  {
    const std::lock_guard lock(lock_);
    activations_.clear();
    for (auto& [name, g] : groups_) {
      g->loaded = false;
      for (auto& s : g->sources) s->done = false, s->attempts = 0;
    }
  }
  if (serves_.load(std::memory_order_acquire)) republish();
}

}  // namespace yard::functions
