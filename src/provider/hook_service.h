// SPDX-License-Identifier: Apache-2.0
// Hooks of a runtime: its hook table, and how plugins, backends and changes of the registry concern it.
#pragma once

#include <yard/hook.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "dispatch/core.h"
#include "plugin/loader.h"
#include "provider/hook_table.h"

namespace yard::provider {

class HookService {
 public:
  // Both must outlive it.
  HookService(detail::Core& core, plugin::Loader& loader);
  HookService(const HookService&) = delete;
  HookService& operator=(const HookService&) = delete;

  HookTable& table() noexcept { return table_; }
  detail::Core& core() noexcept { return core_; }
  // For Hook objects; see detail/hook.h.
  detail::HookSite* attach(const detail::HookDeclaration& declaration, bool& again);
  Status activate(const Activation& a);
  // Whether the backend can be activated. `expected`: a plugin that has not been opened may bring its hooks.
  Status usable(std::string_view backend, const std::optional<Device>& device, bool& expected);
  // Called before a change of the registry is published. If the change adds orphans to an active backend, follow() logs
  // them.
  void note_orphans(const registry::State& before, const registry::State& after);
  // Registry or policy have changed. Holding no lock.
  void follow();
  // Drops all activations.
  void reset();
  HookListing list();
  // In the fork handler of a child.
  void restart_in_child() noexcept { table_.repair_in_child(); }

 private:
  bool plugins_may_bring_hooks();
  std::set<std::string> active_backends() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  HookTable table_;
  std::atomic<bool> orphans_came_{false};
};

}  // namespace yard::provider
