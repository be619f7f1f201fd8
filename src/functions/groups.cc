// SPDX-License-Identifier: Apache-2.0
// Groups of functions, which are loaded on first use: the providers of the program and the plugins that serve the group. One
// thread at a time loads a group.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/log.h"
#include "base/text.h"
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
  GroupLoad(Service& service, Group& group)
      : service_(service), group_(group), outer_(t_innermost) {
    std::unique_lock lock(service_.lock_);
    const auto is_free = [&] { return !group_.loading; };
    if (outer_ == nullptr)
      service_.loaded_.wait(lock, is_free);
    else
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

bool Service::in_use(std::string_view name, bool early) const {
  const std::lock_guard lock(lock_);
  const auto it = groups_.find(name);
  return it != groups_.end() && (it->second->loaded || (early && it->second->early));
}

Status Service::ask_source(Source& source) {
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
            fmt::format("Provider '{}' of group '{}' failed: {}", source.name, source.group,
                        status.to_string()));
  return std::move(status).note(
      fmt::format("provider '{}' of group '{}'", source.name, source.group));
}

Status Service::ask_sources(Group& group, bool again) {
  const bool opened = loader_.need(registry::PluginOffer::kGroup, group.name);
  Status first;
  // A source may add another.
  for (size_t i = 0;; ++i) {
    Source* source;
    {
      const std::lock_guard lock(lock_);
      if (i == group.sources.size()) {
        // If reset() has come meanwhile, the next call asks them again.
        const auto asked = [](const auto& s) { return s->attempts > 0; };
        group.loaded = opened && std::ranges::all_of(group.sources, asked);
        break;
      }
      source = group.sources[i].get();
      if (source->done || (source->attempts > 0 && !again)) continue;
    }
    if (Status s = ask_source(*source); !s.ok() && first.ok()) first = std::move(s);
  }
  return opened ? first : would_deadlock("plugins");
}

Status Service::load_group(std::string_view name, bool again) {
  if (Group* const here = GroupLoad::find(name)) {
    const std::lock_guard lock(lock_);
    here->early = true;
    return {};
  }
  const auto enough = [&] { return !again && in_use(name); };
  if (enough()) return {};
  if (plugin::Loader::inside()) return would_deadlock("groups of functions");
  Group& g = group(name);
  const GroupLoad load(*this, g);
  if (!load.begun())
    return Status(Code::kWouldDeadlock,
                  fmt::format("group '{}' is being loaded by another thread, whose provider may be "
                              "waiting for this one",
                              g.name));
  return enough() ? Status() : ask_sources(g, again);
}

std::vector<std::string> Service::known_groups() const {
  std::set<std::string> names;
  for (const FunctionSite* site : declared_sites()) names.insert(site->group);
  for (const auto& f : core_.snapshot()->state->functions) names.insert(f->group);
  const std::lock_guard lock(lock_);
  for (const auto& [name, g] : groups_)
    if (!g->sources.empty()) names.insert(name);
  return {names.begin(), names.end()};
}

void Service::reset() {
  {
    const std::lock_guard lock(lock_);
    activations_.clear();
    for (auto& [name, g] : groups_) {
      g->loaded = false;
      for (auto& s : g->sources) s->done = false, s->attempts = 0, s->error.clear();
    }
  }
  if (serving() == this) republish();
}

}  // namespace yard::functions

namespace yard {

void Functions::add_provider(std::string group, FunctionSetup setup, std::string name) {
  functions::Group& g = service_->group(group);
  bool was_loaded;
  {
    const std::lock_guard lock(service_->lock_);
    auto made = std::make_unique<functions::Source>();
    made->group = std::move(group);
    made->name = !name.empty() ? std::move(name) : fmt::format("provider {}", g.sources.size() + 1);
    made->setup = std::move(setup);
    g.sources.push_back(std::move(made));
    was_loaded = std::exchange(g.loaded, false);
  }
  // Without tables the next call asks it.
  if (was_loaded && functions::Service::serving() == service_) service_->republish();
}

Status Functions::load(std::string_view group) {
  plugin::Loader& loader = service_->loader_;
  const auto is_known = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, group) != names.end();
  };
  if (!is_known(service_->known_groups())) {
    // A plugin that has not been opened may serve it.
    if (!loader.need(registry::PluginOffer::kGroup, group))
      return functions::would_deadlock("plugins");
    if (const auto names = service_->known_groups(); !is_known(names)) {
      std::string text = fmt::format("no function of group {} is declared or provided{}",
                                     base::excerpt(group), base::did_you_mean(group, names));
      for (const std::string& line : loader.refused_for(registry::PluginOffer::kGroup, group))
        text += "\n  " + line;
      return Status(Code::kNotFound, std::move(text));
    }
  }
  return service_->load_group(group, true);
}

std::vector<FunctionSource> Functions::sources() const {
  std::vector<FunctionSource> to;
  const std::lock_guard lock(service_->lock_);
  for (const auto& [name, g] : service_->groups_)
    for (const auto& s : g->sources) to.push_back(*s);
  return to;
}

}  // namespace yard
