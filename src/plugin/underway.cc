// SPDX-License-Identifier: Apache-2.0
// Loader: what is under way with which plugin, and who waits for it.
#include <thread>

#include "plugin/loader.h"

namespace yard::plugin {

Loader::Claim::Claim(Loader& loader, const std::string& path) : loader_(loader), path_(path) {
  Edit(loader)->underway.push_back({path, std::this_thread::get_id()});
}

Loader::Claim::~Claim() {
  Edit edit(loader_);
  // In a child that plugin code has forked there is none.
  edit->underway.remove_if(
      [&](const Underway& u) { return u.path == path_ && u.thread == std::this_thread::get_id(); });
  edit->ended.notify_all();
}

const Loader::Underway* Loader::underway(const LoaderState& state, std::string_view path) {
  for (const Underway& u : state.underway)
    if (u.path == path) return &u;
  return nullptr;
}

bool Loader::waited_for(const std::string& path) {
  const auto me = std::this_thread::get_id();
  const auto latest_of = [&](std::thread::id thread) {
    Underway* found = nullptr;
    for (Underway& u : state().underway)
      if (u.thread == thread) found = &u;
    return found;
  };
  const auto is_free = [&] { return underway(state(), path) == nullptr; };
  if (is_free()) return false;
  // Two threads that load plugins for each other's ops must not wait for each other.
  for (const Underway* u = underway(state(), path); u != nullptr;) {
    if (u->thread == me) return false;
    const Underway* const waiting = latest_of(u->thread);
    u = waiting->waits_for.empty() ? nullptr : underway(state(), waiting->waits_for);
  }
  Underway* const mine = latest_of(me);
  if (mine != nullptr) mine->waits_for = path;
  { const Released to_log(*this); }  // this may take long
  state().ended.wait(LoadingLock::t_held->lock_, is_free);
  if (mine != nullptr) mine->waits_for.clear();
  return true;
}

bool Loader::waited_for_namesake(const PluginRecord& of) {
  LoaderState& s = state();
  for (const Underway& u : s.underway)
    if (const PluginRecord* r = s.index.find_path(u.path);
        r != nullptr && r->path != of.path && r->manifest.name == of.manifest.name)
      if (waited_for(std::string(u.path))) return true;
  return false;
}

const PluginRecord* Loader::find_idle(std::string_view name_or_path) {
  for (;;) {
    const PluginRecord* const r = state().index.find(name_or_path);
    if (r == nullptr || !waited_for(std::string(r->path))) return r;
  }
}

}  // namespace yard::plugin
