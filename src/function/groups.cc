// SPDX-License-Identifier: Apache-2.0
// Groups of functions that come when they are first needed.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "function/registry.h"
#include "registry/function_sites.h"

namespace yard::function {
namespace {

// Groups that this thread is loading: what it calls meanwhile gets what is there.
thread_local std::vector<std::string_view>* t_loading = nullptr;
class Loading {
 public:
  explicit Loading(std::string_view group) : outer_(t_loading) {
    if (outer_ != nullptr) groups_ = *outer_;
    groups_.push_back(group);
    t_loading = &groups_;
  }
  ~Loading() { t_loading = outer_; }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

 private:
  std::vector<std::string_view>* outer_;
  std::vector<std::string_view> groups_;
};

}  // namespace

bool Registry::loading_here(std::string_view group) noexcept {
  return t_loading != nullptr &&
         std::find(t_loading->begin(), t_loading->end(), group) != t_loading->end();
}

Status Registry::ask_source(const Group& group, Source& source) {
  Status status;
  try {
    Changes changes;
    status = source.setup(changes);
    if (status.ok()) status = services_.apply(std::move(changes));
  } catch (const Error& e) {
    status = e.status();
  } catch (const std::exception& e) {
    status = Status(Code::kKernelFailed, std::string("it threw: ") + e.what());
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    status = Status(Code::kKernelFailed, "it threw something that is no std::exception");
  }
  sources_.tried(source, status);
  if (status.ok()) return {};
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("Provider '{}' of group '{}' failed: {}", source.name, group.name,
                        status.to_string()));
  return std::move(status).note(
      fmt::format("provider '{}' of group '{}'", source.name, group.name));
}

Status Registry::ask_sources(Group& group, bool again) {
  const Loading here(group.name);
  const bool opened = services_.need(group.name);
  Status first;
  std::vector<const Source*> asked;
  // One of them may bring another.
  while (Source* source = sources_.next(group, asked, again, opened)) {
    asked.push_back(source);
    if (Status s = ask_source(group, *source); !s.ok() && first.ok()) first = std::move(s);
  }
  if (opened) return first;
  return Status(Code::kWouldDeadlock,
                "plugins cannot be loaded by the code of a plugin that is being loaded");
}

Status Registry::load_group(std::string_view name, Ask ask) {
  if (loading_here(name)) return {};
  Group& group = sources_.group(name);
  const auto enough = [&] { return ask == Ask::kFirst && group.loaded.load(); };
  if (enough()) return {};
  if (services_.inside_loader())
    return Status(Code::kWouldDeadlock,
                  "groups of functions cannot be loaded by the code of a plugin that is being "
                  "loaded");
  const std::lock_guard lock(turn_.get().lock);
  return enough() ? Status() : ask_sources(group, ask == Ask::kAgain);
}

void Registry::add_provider(std::string group, FunctionSetup setup, std::string name) {
  if (sources_.add(group, std::move(setup), std::move(name))) late_provider(group);
}

void Registry::late_provider(std::string_view name) {
  if (loading_here(name)) return;  // whoever loads it comes to this one
  if (!services_.inside_loader()) return load_group(name, Ask::kLate).ignore();
  // Who has the turn of groups may wait for the loader, that is for us.
  const std::unique_lock lock(turn_.get().lock, std::try_to_lock);
  if (lock) return ask_sources(sources_.group(name), false).ignore();
  // The next call asks it.
  sources_.unload(name);
  if (!serves_.load(std::memory_order_acquire)) return;
  const std::lock_guard tables(tables_.get().lock);
  for (detail::FunctionSite* site : registry::all_function_sites())
    if (site->group == name) withdraw(*site);
}

bool Registry::known(std::string_view group) const {
  const Group* g = sources_.find(group);
  if (g != nullptr && g->first.load(std::memory_order_acquire) != nullptr) return true;
  for (const detail::FunctionSite* site : registry::function_sites())
    if (site->group == group) return true;
  for (const auto& hook : core_.snapshot()->state->functions)
    if (hook->group == group) return true;
  return false;
}

Status Registry::unknown(std::string_view group) const {
  std::set<std::string> names;
  for (std::string& name : sources_.groups()) names.insert(std::move(name));
  for (const detail::FunctionSite* site : registry::function_sites()) names.insert(site->group);
  for (const auto& hook : core_.snapshot()->state->functions) names.insert(hook->group);
  std::string text =
      fmt::format("nobody declares, provides or serves a function of group {}{}",
                  base::excerpt(group), base::did_you_mean(group, {names.begin(), names.end()}));
  for (const std::string& line : services_.refused(group)) text += "\n  " + line;
  return Status(Code::kNotFound, std::move(text));
}

Status Registry::load(std::string_view group) {
  if (!known(group)) {
    // Perhaps a plugin serves it that has not been opened.
    if (!services_.need(group))
      return Status(Code::kWouldDeadlock,
                    "plugins cannot be loaded by the code of a plugin that is being loaded");
    if (!known(group)) return unknown(group);
  }
  YARD_RETURN_IF_ERROR(load_group(group, Ask::kAgain));
  return {};
}

}  // namespace yard::function
