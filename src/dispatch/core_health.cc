// SPDX-License-Identifier: Apache-2.0
// What breakers follow, and what they are told.
#include "dispatch/core.h"

namespace yard::detail {

void Core::settle_breakers() {
  bool moved = false;
  {
    // One at a time, each with what is in force then: else the last to write could be the one that read first.
    const std::lock_guard lock(root().settling);
    const auto policy = snapshot()->policy;
    const Config none;
    const BreakerSettings wanted =
        breaker_of(policy->file != nullptr ? policy->file->config : none, policy->breakers);
    moved =
        wanted != board.settings() && board.set_settings(wanted, std::chrono::steady_clock::now());
  }
  if (moved) health_moved();
}

Status Core::set_breakers(const BreakerSettings& settings) {
  YARD_RETURN_IF_ERROR(validate(settings));
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.breakers = settings;
    return Status();
  });
}

std::vector<health::Successes> Core::successes() const {
  std::vector<health::Successes> to;
  const auto s = snapshot();
  for (const auto& e : s->owners()) {
    if (e == nullptr) continue;
    const auto& candidates = e->candidates().all();
    for (size_t i = 0; i < candidates.size(); ++i)
      to.push_back({e->name(), candidates[i].kernel->id, candidates[i].kernel->backend_name,
                    e->stats(i).calls.total()});
  }
  if (add_successes) add_successes(to);
  return to;
}

}  // namespace yard::detail
