// SPDX-License-Identifier: Apache-2.0
// Rules on trial: how they come into force for all calls, or are taken back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "runtime/reload.h"

namespace yard::runtime {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

// What a file says has been checked; what a program says may be anything.
Status check_rule(const RolloutRule& r) {
  const auto wrong = [](const char* what, double found, const char* right) {
    return Status(Code::kInvalidArgument,
                  fmt::format("canary.{} is {:g}; {} would be right", what, found, right));
  };
  constexpr double kDay = 86'400;
  if (!(r.percent > 0 && r.percent <= 100))
    return wrong("percent", r.percent, "more than 0 and at most 100");
  if (!(r.hold_s > 0 && r.hold_s <= kDay)) return wrong("hold_s", r.hold_s, "up to 86400 s");
  if (!(r.max_error_rate >= 0 && r.max_error_rate <= 1))
    return wrong("max_error_rate", r.max_error_rate, "0 to 1");
  if (!(r.max_slowdown >= 1)) return wrong("max_slowdown", r.max_slowdown, "at least 1");
  return {};
}

}  // namespace

Status Reloader::begin_trial(State& s, const Offer& o,
                             std::shared_ptr<const policy::FileRules> rules) {
  const RolloutRule& rule = *rules->config.canary;
  YARD_RETURN_IF_ERROR(check_rule(rule));
  YARD_RETURN_IF_ERROR(core_.begin_rollout(rules, rule));
  auto trial = std::make_shared<Trial>();
  trial->rules = std::move(rules), trial->sha256 = o.reading.sha256, trial->source = o.source;
  trial->end = Clock::now() + seconds(rule.hold_s);
  // Often enough to take back bad ones early, also when the time is short.
  trial->step = std::clamp<std::chrono::nanoseconds>(
      seconds(rule.hold_s / 20), std::chrono::milliseconds(5), std::chrono::seconds(1));
  s.trial = trial;
  return events_.post_at(Clock::now() + trial->step, [this, trial] { look_at_trial(trial); });
}

void Reloader::look_at_trial(const std::shared_ptr<const Trial>& trial) {
  State& s = state_.get();
  const std::lock_guard one(s.pipeline);
  if (s.trial != trial) return;  // other rules have been offered since
  const auto rollout = core_.snapshot()->policy->rollout;
  if (rollout == nullptr) return;
  const policy::RolloutResult r = rollout->result();
  const auto now = Clock::now();
  if (r.too_bad.empty() && now < trial->end) {
    const auto next = std::min(now + trial->step, trial->end);
    events_.post_at(next, [this, trial] { look_at_trial(trial); }).ignore();
    return;
  }
  s.trial = nullptr;
  Status status = r.too_bad.empty() ? core_.set_file(trial->rules) : core_.end_rollout();
  std::vector<ConfigProblem> problems;
  if (!r.too_bad.empty() || !status.ok())
    problems.push_back({Severity::kError, trial->source, 0, 0, "canary",
                        r.too_bad.empty() ? status.to_string() : r.too_bad, ""});
  const std::lock_guard lock(s.lock);
  for (const ConfigProblem& p : problems) base::log(LogLevel::kError, "policy", to_string(p));
  const bool in_force = problems.empty();
  if (in_force)
    remember(s, trial->sha256, trial->source, std::make_shared<const Config>(trial->rules->config));
  else
    s.problems = problems;
  tell(s, {in_force ? ConfigEvent::Kind::kReloaded : ConfigEvent::Kind::kTakenBack, s.last,
           trial->source, std::move(problems)});
}

}  // namespace yard::runtime
