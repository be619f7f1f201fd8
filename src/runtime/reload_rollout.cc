// SPDX-License-Identifier: Apache-2.0
// Rules in rollout: how they come into force for all calls, or are taken back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "dispatch/policy_changes.h"
#include "runtime/reload.h"

namespace yard::runtime {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

}  // namespace

void Reloader::check_canary(const RolloutRule& r, ConfigReading& reading) {
  const auto wrong = [&](const char* what, double found, const char* right) {
    reading.problems.push_back({Severity::kError, reading.files.empty() ? "" : reading.files[0], 0,
                                0, std::string("rollout.") + what,
                                fmt::format("{:g} makes no sense", found),
                                fmt::format("expected {}", right)});
  };
  constexpr double kDay = 86'400;
  if (!(r.percent > 0 && r.percent <= 100))
    wrong("percent", r.percent, "more than 0 and at most 100");
  if (!(r.hold_s > 0 && r.hold_s <= kDay)) wrong("hold_s", r.hold_s, "up to 86400 s");
  if (!(r.max_error_rate >= 0 && r.max_error_rate <= 1))
    wrong("max_error_rate", r.max_error_rate, "0 to 1");
  if (!(r.max_slowdown >= 1)) wrong("max_slowdown", r.max_slowdown, "at least 1");
}

Status Reloader::begin_rollout(State& s, const Offer& o,
                               std::shared_ptr<const policy::FileRules> rules) {
  const RolloutRule& rule = *rules->config.rollout;
  auto rollout = std::make_shared<ActiveRollout>();
  rollout->rules = rules, rollout->sha256 = o.reading.sha256, rollout->source = o.source;
  rollout->from = o.from;
  rollout->end = Clock::now() + seconds(rule.hold_s);
  // Often enough to take back bad ones early, also when the time is short.
  rollout->step = std::clamp<std::chrono::nanoseconds>(
      seconds(rule.hold_s / 20), std::chrono::milliseconds(5), std::chrono::seconds(1));
  // First of all somebody who will end it. He waits for the pipeline, and looks at no rollout but the current one.
  YARD_RETURN_IF_ERROR(
      keeper_.post_at(Clock::now() + rollout->step, [this, rollout] { check_rollout(rollout); }));
  YARD_RETURN_IF_ERROR(detail::begin_rollout(core_, rules, rule));
  s.rollout = std::move(rollout);
  return {};
}

Reloader::Problems Reloader::end_rollout(const ActiveRollout& rollout, std::string too_bad) {
  Problems problems;
  const auto add = [&](std::string found, std::string right) {
    problems.push_back(
        {Severity::kError, rollout.source, 0, 0, "rollout", std::move(found), std::move(right)});
  };
  if (!too_bad.empty()) {
    add(std::move(too_bad), "");
  } else {
    // Calls and kernels have come and gone since the rules were checked.
    for (const detail::UnservedCall& o : detail::unserved_under(core_, rollout.rules))
      add(fmt::format("{} would be left without a kernel ({})", o.call, o.why),
          fmt::format("{} serves it now", o.kernel));
  }
  if (problems.empty())
    if (const Status status = detail::set_file(core_, rollout.rules); !status.ok())
      add(status.to_string(), "");
  if (!problems.empty())
    if (const Status status = detail::end_rollout(core_); !status.ok()) add(status.to_string(), "");
  return problems;
}

void Reloader::check_rollout(const std::shared_ptr<const ActiveRollout>& rollout) {
  State& s = state_.get();
  const std::lock_guard one(s.pipeline);
  if (s.rollout != rollout) return;  // other rules have been offered since
  const auto measured = core_.snapshot()->policy->rollout;
  if (measured == nullptr) {
    s.rollout = nullptr;
    return;
  }
  const auto now = Clock::now();
  const bool over = now >= rollout->end;
  policy::RolloutResult r = measured->result(over);
  if (r.too_bad.empty() && !over) {
    const auto next = std::min(now + rollout->step, rollout->end);
    keeper_.post_at(next, [this, rollout] { check_rollout(rollout); }).ignore();
    return;
  }
  s.rollout = nullptr;
  std::vector<ConfigProblem> problems = end_rollout(*rollout, std::move(r.too_bad));
  for (const ConfigProblem& p : problems) base::log_event(LogLevel::kError, "policy", to_string(p));
  const bool in_force = problems.empty();
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (in_force) {
      if (rollout->from == From::kLoad)
        watch_loaded(s, rollout->from, rollout->source, rollout->sha256);
      remember(s, rollout->sha256, rollout->source,
               std::make_shared<const Config>(rollout->rules->config));
    } else {
      s.problems = problems;
    }
  }
  const std::lock_guard lock(s.lock);
  tell(s, {in_force ? ConfigEvent::Kind::kReloaded : ConfigEvent::Kind::kTakenBack, s.last,
           rollout->source, std::move(problems)});
}

}  // namespace yard::runtime
