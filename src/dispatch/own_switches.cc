// SPDX-License-Identifier: Apache-2.0
#include "dispatch/own_switches.h"

#include <cstdlib>

#include "base/log.h"

namespace yard::dispatch {

void read_own_switches(const registry::State& state, policy::ProcessPolicy& policy) {
  auto& own = policy.own_switches;
  std::erase_if(own, [&](const auto& o) { return !state.backends.contains(o.first); });
  for (const auto& [name, backend] : state.backends) {
    if (backend->env.empty() || own.contains(name)) continue;
    const char* value = std::getenv(backend->env.c_str());
    const auto& read = own[name] =
        policy::read_own_switch(backend->env, value != nullptr ? value : "", name);
    if (read.problem) base::log(LogLevel::kWarn, "policy", policy::to_string(*read.problem));
  }
}

bool has_own_switches(const registry::State& state) {
  for (const auto& [name, backend] : state.backends)
    if (!backend->env.empty()) return true;
  return false;
}

}  // namespace yard::dispatch
