// SPDX-License-Identifier: Apache-2.0
// Hooks of a runtime: the table of the registry, and how plugins and backends have a say in it.
#pragma once

#include <yard/hook.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "dispatch/core.h"
#include "plugin/loader.h"
#include "registry/hooks.h"

namespace yard::runtime {

class HookService {
 public:
  // Both must outlive it.
  HookService(detail::Core& core, plugin::Loader& loader);
  HookService(const HookService&) = delete;
  HookService& operator=(const HookService&) = delete;

  registry::HookTable& table() noexcept { return table_; }
  detail::Core& core() noexcept { return core_; }
  // For Hook handles; see detail/hook.h.
  detail::HookSite* attach(const detail::HookDeclaration& declaration, bool& again);
  Status activate(const registry::Activation& a);
  // Whether the backend can be activated: it is there, or somebody may bring it.
  Status usable(std::string_view backend, const std::optional<Device>& device, bool& expected);
  // Before a change of the registry is published, under its lock: what it brings to active backends must be declared
  // where that is asked for, else follow() logs it.
  Status check(const registry::State& before, const registry::State& after);
  // Registry or policy have changed. Holding no lock.
  void follow();
  // Back to the beginning.
  void start_over();
  // In the fork handler of a child.
  void restart_in_child() noexcept { table_.mend_in_child(); }

  std::atomic<bool> strict{false};

 private:
  bool plugins_may_bring_hooks();
  std::set<std::string> active_backends() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  registry::HookTable table_;
  std::atomic<bool> orphans_came_{false};
};

}  // namespace yard::runtime
