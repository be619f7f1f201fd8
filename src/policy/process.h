// SPDX-License-Identifier: Apache-2.0
// What is said for the whole process: by the environment, and over it through the API.
#pragma once

#include <yard/policy.h>

#include <memory>
#include <string>
#include <vector>

#include "policy/environment.h"

namespace yard::policy {

// The environment as it was last read.
struct Reading {
  Environment good;  // all that means something, of now or of an earlier reading
  std::vector<EnvProblem> problems;
};

// Immutable once published.
struct ProcessPolicy {
  std::shared_ptr<const Reading> reading = std::make_shared<Reading>();
  Policy set;          // through the API
  Policy environment;  // of the reading, with backends called by their names
  Policy in_force;     // both

  // Fills in the rest for the backends there are.
  static ProcessPolicy of(std::shared_ptr<const Reading> reading, Policy set,
                          const std::vector<std::string>& backends) {
    ProcessPolicy p{std::move(reading), std::move(set), {}, {}};
    p.environment = with_backend_names(p.reading->good.policy, backends);
    p.in_force = merge(p.environment, p.set);
    return p;
  }
};

}  // namespace yard::policy
