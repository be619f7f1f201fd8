// SPDX-License-Identifier: Apache-2.0
#include "runtime/late_rules.h"

#include <algorithm>

#include "base/log.h"
#include "runtime/config.h"

namespace yard::runtime {

bool LateRules::has_new(State& s, const registry::State& registry) {
  bool found = false;
  for (const auto& [name, op_record] : registry.op_records) {
    const std::shared_ptr<const op::Program>& program = op_record->op->program;
    if (s.file->knows(*program)) continue;
    std::shared_ptr<const op::Program>& judged = s.judged[name];
    if (judged == program) continue;
    judged = program;
    found = found || s.file->concerns(name);
  }
  return found;
}

void LateRules::follow() {
  std::vector<ConfigProblem> news;
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock);
    const auto now = core_.snapshot();  // here: another thread may have been told of a later one
    if (s.file != now->policy->file) {
      s.file = now->policy->file;
      s.judged.clear(), s.problems.clear();
    }
    if (s.file == nullptr || !has_new(s, *now->state)) return;
    for (ConfigProblem& p :
         wrong_conditions(s.file->config, *now->state, *now->policy->modes, announced_()))
      if (std::find(s.problems.begin(), s.problems.end(), p) == s.problems.end()) {
        s.problems.push_back(p);
        news.push_back(std::move(p));
      }
  }
  for (const ConfigProblem& p : news)
    base::log_event(LogLevel::kError, "policy",
                    to_string(p) + " (found when the op came; the rule does nothing there)");
}

std::vector<ConfigProblem> LateRules::problems() {
  State& s = state_.get();
  const std::lock_guard lock(s.lock);
  return s.problems;
}

}  // namespace yard::runtime
