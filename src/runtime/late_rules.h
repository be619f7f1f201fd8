// SPDX-License-Identifier: Apache-2.0
// Rules about ops that were not known when their file was read: a plugin announces them and is opened later, or
// the program adds them. What is wrong with their conditions is found out here and told.
#pragma once

#include <yard/config.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/owned_per_process.h"
#include "dispatch/core.h"

namespace yard::runtime {

class LateRules {
 public:
  // `announced`: ops that plugins bring which are not loaded.
  LateRules(detail::Core& core, std::function<std::vector<std::string>()> announced)
      : core_(core), announced_(std::move(announced)) {}

  // After each change: judges what the rules in force say of ops that have come since. Any thread.
  void follow();
  // What was found wrong with the rules in force, after they came into force.
  std::vector<ConfigProblem> problems();

 private:
  struct State {
    std::mutex lock;
    std::shared_ptr<const policy::FileRules> file;  // the rules that this is about
    std::map<std::string, std::shared_ptr<const op::Program>> judged;  // and not with the file
    std::vector<ConfigProblem> problems;
    void inherit(State& parents) {
      file = parents.file, judged = parents.judged, problems = parents.problems;
    }
  };
  // Under the lock: whether there is an op that the rules are about and that has not been judged.
  static bool has_new(State& s, const registry::State& registry);

  detail::Core& core_;
  const std::function<std::vector<std::string>()> announced_;
  base::OwnedPerProcess<State> state_;
};

}  // namespace yard::runtime
