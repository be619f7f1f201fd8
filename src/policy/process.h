// SPDX-License-Identifier: Apache-2.0
// The policy of the process: of the rule file, over it that of the environment, and over that the one set through the
// API.
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
class CallObserver;  // of a layer above: only passed on
}

namespace yard::policy {

// The environment as it was last read.
struct Reading {
  Environment good;  // the valid values, of now or of an earlier reading
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
  std::shared_ptr<const Modes> modes = std::make_shared<Modes>();  // added by the program
  std::shared_ptr<registry::CallObserver> observer;  // observes every call; null: none
  std::shared_ptr<const Rollout> rollout;            // rules in rollout beside `file`; null: none
  // Of the variables that descriptors of backends name, by backend; read once, with the reading or when the backend is
  // registered.
  std::map<std::string, OwnSwitch, std::less<>> own_switches;
  std::set<std::string, std::less<>> by_own;  // backends switched by those, not by YARD_BACKEND_*
  Policy environment;  // of the reading and those, with real names of backends
  Policy in_force;     // all together

  // Computes the last three for the registered backends.
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
