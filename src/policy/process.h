// SPDX-License-Identifier: Apache-2.0
// What is said for the whole process: by the rule file, over it by the environment, and over that through
// the API.
#pragma once

#include <yard/config.h>
#include <yard/health.h>
#include <yard/policy.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "op/call_spec.h"
#include "policy/environment.h"
#include "policy/file_rules.h"
#include "policy/modes.h"
#include "policy/rollout.h"

namespace yard::registry {
class CallObserver;  // which is above: it is only handed on
}

namespace yard::policy {

// The environment as it was last read.
struct Reading {
  Environment good;  // all that means something, of now or of an earlier reading
  std::vector<EnvProblem> problems;
};

// Immutable once published.
struct ProcessPolicy {
  std::shared_ptr<const Reading> reading = std::make_shared<Reading>();
  Policy set;                             // through the API
  std::shared_ptr<const FileRules> file;  // null: none
  op::Labels labels;                      // of every call
  BreakerSettings breakers;               // through the API; under the file's
  StaticMap mapped;                       // through the API; over the file's
  std::shared_ptr<const Modes> modes = std::make_shared<Modes>();  // that the program has added
  std::shared_ptr<registry::CallObserver> observer;                // told of every call; null: none
  std::shared_ptr<const Rollout> rollout;  // rules in rollout beside `file`; null: none
  // What the variables say that backends chose for themselves, by backend; read once, with the reading or when the
  // backend came.
  std::map<std::string, OwnSwitch, std::less<>> own_switches;
  std::set<std::string, std::less<>> by_own;  // backends for which those decide, not YARD_BACKEND_*
  Policy environment;  // of the reading and those, with backends called by their names
  Policy in_force;     // all together

  // Fills in the rest for the backends there are.
  void settle(const std::vector<std::string>& backends) {
    environment = with_backend_names(reading->good.policy, backends);
    by_own.clear();
    for (const auto& [backend, own] : own_switches)
      if (own.on && environment.backends.try_emplace(backend, *own.on).second)
        by_own.insert(backend);
    in_force = merge(file != nullptr ? merge(file->said, environment) : environment, set);
    if (rollout == nullptr) return;
    auto next = std::make_shared<ProcessPolicy>(*this);
    next->file = rollout->next().file;
    next->rollout = nullptr;
    next->settle(backends);
    rollout = rollout->with(std::move(next));
  }
};

}  // namespace yard::policy
