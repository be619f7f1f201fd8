// SPDX-License-Identifier: Apache-2.0
// Whose states a call uses, and when they end.
#include <yard/bound.h>

#include "dispatch/core.h"

namespace yard::detail {

exec::States* Core::states_for(const Options* o) const noexcept {
  return o != nullptr && o->instance != nullptr ? o->instance->states_.get() : &root().states;
}

void Core::watch(const std::shared_ptr<exec::States>& states) {
  Root& r = root();
  std::lock_guard lock(r.plans);
  std::erase_if(r.instances, [](const auto& i) { return i.expired(); });
  r.instances.push_back(states);
}

void Core::end_states() {
  Root& r = root();
  std::vector<std::shared_ptr<exec::States>> instances;
  {
    std::lock_guard lock(r.plans);
    for (const auto& i : r.instances)
      if (auto states = i.lock()) instances.push_back(std::move(states));
  }
  const auto now = snapshot()->state;
  r.states.keep_only(*now);
  for (const auto& states : instances) states->keep_only(*now);
}

}  // namespace yard::detail
