// SPDX-License-Identifier: Apache-2.0
// What follows from the rules in force outside of the dispatcher.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "rules/rules.h"

namespace yard::rules {

// Recording publishes, which leads here again, so no lock is held meanwhile. One thread goes on until it has applied the
// rules in force: nothing older comes last.
void Rules::follow() {
  check_later_ops();
  std::unique_lock lock(lock_);
  while (!applying_) {
    const auto file = core_.snapshot()->policy->file;
    if (applied_ == file) return;
    applied_ = file, applying_ = true;
    lock.unlock();
    try {
      const Config none;
      apply_settings((file != nullptr ? file->config : none).settings);
    } catch (...) {  // no memory: the next follow() tries again
      lock.lock();
      applied_ = nullptr, applying_ = false;
      throw;
    }
    lock.lock();
    applying_ = false;
  }
}

void Rules::apply_settings(const ConfigSettings& settings) {
  loader_.require_verified(settings.plugins.require_verified.value_or(false));
  if (settings.cache.lifetime) wake_();
  const std::string wanted = settings.telemetry.record.value_or("");
  if (wanted == recorded_) return;
  recorded_ = wanted;
  if (const Status status = record_(wanted); !status.ok())
    base::log(LogLevel::kError, "runtime",
              fmt::format("settings.telemetry.record: {}", status.to_string()));
}

void Rules::check_later_ops() {
  const auto now = core_.snapshot();
  const auto rules = now->policy->file;
  {
    const std::lock_guard lock(lock_);
    if (checked_ != rules) {
      checked_ = rules;
      later_ops_.clear(), later_problems_.clear();
    }
    if (rules == nullptr) return;
    bool concerned = false;
    for (const auto& [name, op_record] : now->state->op_records) {
      const std::shared_ptr<const op::Program>& program = op_record->op->program;
      if (rules->knows(program)) continue;
      std::shared_ptr<const op::Program>& seen = later_ops_[name];
      concerned |= seen != program && rules->concerns(name);
      seen = program;
    }
    if (!concerned) return;
  }
  Problems found = check_conditions(*rules, *now->state, *now->policy, loader_);
  {
    const std::lock_guard lock(lock_);
    if (checked_ != rules) return;
    std::erase_if(found, [&](const ConfigProblem& p) {
      return std::ranges::find(later_problems_, p) != later_problems_.end();
    });
    later_problems_.insert(later_problems_.end(), found.begin(), found.end());
  }
  for (const ConfigProblem& p : found)
    base::log_event(
        LogLevel::kError, "policy",
        to_string(p) + " (found when the op was registered; the rule has no effect there)");
}

}  // namespace yard::rules
