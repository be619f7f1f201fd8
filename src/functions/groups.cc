// SPDX-License-Identifier: Apache-2.0
// Groups of functions are loaded on first use: the providers of the program run, and the plugins
// that serve the group are opened. One thread at a time loads a group.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "functions/functions.h"

namespace yard::functions {

static Status would_deadlock(std::string_view what) {
  return Status(
      Code::kWouldDeadlock,
      fmt::format("{} cannot be loaded by the code of a plugin that is being loaded", what));
}

Status status_of_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return e.status();
  } catch (...) {
    return Status(Code::kKernelFailed, "it threw: " + base::current_exception_text());
  }
}

bool Service::in_use(std::string_view name) const {
  const std::lock_guard lock(lock_);
  const auto it = groups_.find(name);
  return it != groups_.end() && it->second.loaded;
}

Status Service::ask_source(const RegisteredSource& source) {
  try {
    Changes changes;
    Status status = source.setup(changes);
    return status.ok() ? apply_(std::move(changes)) : status;
  } catch (...) {
    return status_of_exception();
  }
}

Status Service::ask_sources(Group& group, std::string_view name, bool again) {
  const bool opened = loader_.need(registry::PluginOffer::kGroup, name);
  Status first;
  std::unique_lock lock(lock_);
  // A provider may add another one, so the size can grow in the loop.
  for (size_t i = 0; i < group.sources.size(); ++i) {
    RegisteredSource& source = group.sources[i];
    if (source.done || (source.attempts > 0 && !again)) continue;
    lock.unlock();
    Status status = ask_source(source);
    if (!status.ok())
      base::log(LogLevel::kWarn, "dispatch",
                fmt::format("Provider '{}' of group '{}' failed: {}", source.name, name,
                            status.to_string()));
    lock.lock();
    source.done = status.ok(), ++source.attempts;
    source.error = status.ok() ? "" : status.to_string();
    if (first.ok() && !status.ok())
      first = std::move(status).note(fmt::format("provider '{}' of group '{}'", source.name, name));
  }
  // If reset() ran meanwhile, the next call runs the sources again.
  const auto asked = [](const RegisteredSource& s) { return s.attempts > 0; };
  group.loaded = opened && std::ranges::all_of(group.sources, asked);
  return opened ? first : would_deadlock("plugins");
}

Status Service::load_group(std::string_view name, bool again) {
  const auto me = std::this_thread::get_id();
  std::unique_lock lock(lock_);
  Group& g = groups_[std::string(name)];
  const auto is_free = [&] { return g.loader == std::thread::id(); };
  const auto is_mine = [&](const auto& named) { return named.second.loader == me; };
  if (g.loader == me || (g.loaded && !again)) return {};
  if (plugin::Loader::inside()) return would_deadlock("groups of functions");
  // The other thread's provider may be waiting for a group that this thread loads.
  const bool nested = std::ranges::any_of(groups_, is_mine);
  if (!nested)
    loaded_.wait(lock, is_free);
  else if (!loaded_.wait_for(lock, std::chrono::seconds(1), is_free))
    return Status(Code::kWouldDeadlock,
                  fmt::format("group '{}' is being loaded by another thread, whose provider may be "
                              "waiting for this one",
                              name));
  if (g.loaded && !again) return {};
  g.loader = me;
  lock.unlock();
  const auto end = [this](Group* loading) {
    const std::lock_guard hold(lock_);
    loading->loader = {};
    loaded_.notify_all();
  };
  const std::unique_ptr<Group, decltype(end)> loading(&g, end);
  return ask_sources(g, name, again);
}

std::vector<std::string> Service::known_groups() const {
  std::set<std::string> names;
  for (const FunctionSite* site : declared_sites()) names.insert(site->group);
  for (const auto& f : core_.snapshot()->state->functions) names.insert(f->group);
  const std::lock_guard lock(lock_);
  for (const auto& [name, g] : groups_)
    if (!g.sources.empty()) names.insert(name);
  return {names.begin(), names.end()};
}

void Service::reset() {
  {
    const std::lock_guard lock(lock_);
    activations_.clear();
    for (auto& [name, g] : groups_) {
      g.loaded = false;
      for (RegisteredSource& s : g.sources) s.done = false, s.attempts = 0, s.error.clear();
    }
  }
  if (serving() == this) republish().ignore();
}

}  // namespace yard::functions

namespace yard {

void Functions::add_provider(std::string group, FunctionSetup setup, std::string name) {
  bool was_loaded;
  {
    const std::lock_guard lock(service_->lock_);
    functions::Group& g = service_->groups_[group];
    if (name.empty()) name = fmt::format("provider {}", g.sources.size() + 1);
    functions::RegisteredSource& made = g.sources.emplace_back();
    made.group = std::move(group), made.name = std::move(name), made.setup = std::move(setup);
    was_loaded = std::exchange(g.loaded, false);
  }
  // Publishing removes the tables of the group, so the next call runs the new provider.
  if (was_loaded && functions::Service::serving() == service_) service_->republish().ignore();
}

Status Functions::load(std::string_view group) {
  plugin::Loader& loader = service_->loader_;
  if (!loader.need(registry::PluginOffer::kGroup, group))
    return functions::would_deadlock("plugins");
  if (const auto names = service_->known_groups(); !base::contains(names, group)) {
    std::string text = fmt::format("no function of group {} is declared or provided{}",
                                   base::excerpt(group), base::did_you_mean(group, names));
    for (const std::string& line : loader.refused_for(registry::PluginOffer::kGroup, group))
      text += "\n  " + line;
    return Status(Code::kNotFound, std::move(text));
  }
  return service_->load_group(group, true);
}

std::vector<FunctionSource> Functions::sources() const {
  std::vector<FunctionSource> to;
  const std::lock_guard lock(service_->lock_);
  for (const auto& [name, g] : service_->groups_)
    to.insert(to.end(), g.sources.begin(), g.sources.end());
  return to;
}

}  // namespace yard
