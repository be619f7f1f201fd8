// SPDX-License-Identifier: Apache-2.0
// Submitting rules: check, dry run, publication, rollout, history, listeners.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/policy_changes.h"
#include "rules/rules.h"

namespace yard::rules {
namespace {

using Clock = std::chrono::steady_clock;

void add_error(ConfigReading& reading, std::string found, std::string right) {
  reading.problems.push_back({Severity::kError, reading.files.empty() ? "" : reading.files[0], 0, 0,
                              "", std::move(found), std::move(right)});
}

std::string unserved_text(const dispatch::UnservedCall& u) {
  return fmt::format("{} would be left without a kernel ({})", u.call, u.why);
}
std::string serves_text(const dispatch::UnservedCall& u) {
  return fmt::format("{} serves it now", u.kernel);
}

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

// Errors first; the rest is in problems().
void log_problems(const Problems& problems) {
  constexpr size_t kMost = 20;
  size_t count = 0;
  for (const Severity severity : {Severity::kError, Severity::kWarning})
    for (const ConfigProblem& p : problems)
      if (p.severity == severity && ++count <= kMost)
        base::log_event(severity == Severity::kError ? LogLevel::kError : LogLevel::kWarn, "policy",
                        yard::to_string(p));
  if (count > kMost)
    base::log_event(LogLevel::kWarn, "policy",
                    fmt::format("{} more problems; `yard config check` lists them", count - kMost));
}

}  // namespace

// While one lives, this thread is submitting rules or ending a rollout.
class Rules::Inside {
 public:
  explicit Inside(const Rules* of) : of_(of), outer_(std::exchange(t_innermost, this)) {}
  ~Inside() { t_innermost = outer_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool is_here(const Rules* of) {
    const Inside* i = t_innermost;
    while (i != nullptr && i->of_ != of) i = i->outer_;
    return i != nullptr;
  }

 private:
  static thread_local constinit const Inside* t_innermost;
  const Rules* const of_;
  const Inside* const outer_;
};
thread_local constinit const Rules::Inside* Rules::Inside::t_innermost = nullptr;

Rules::Rules(detail::Core& core, plugin::Loader& loader)
    : core_(core),
      loader_(loader),
      watcher_([this] { return reread(); }),
      restart_([this] { restart_watch(); }) {}

Rules::~Rules() {
  // Rollouts and listeners may use everything here, so they end first.
  rollout_thread_.stop();
  listeners_thread_.stop();
  unwatch();
}

Status Rules::check_reentry() const {
  if (!select::inside_select() && !Inside::is_here(this)) return {};
  return Status(Code::kWouldDeadlock,
                "a validator, log sink, probe, verifier or cost hint must not change the rules");
}

Status Rules::set(Config config, Problems* problems) {
  return submit(submission(std::move(config), "Rules::set"), problems);
}

Status Rules::change(Config config, std::string source, Problems* problems) {
  Submission o = submission(std::move(config), std::move(source));
  o.at_once = true;
  return submit(std::move(o), problems);
}

Rules::Submission Rules::submission(Config config, std::string source) {
  Submission o;
  o.reading.config = std::move(config);
  o.source = std::move(source);
  // Problems name their source.
  if (o.reading.config.sources.files.empty()) o.reading.config.sources.files = {o.source};
  o.reading.files = o.reading.config.sources.files;
  return o;
}

Status Rules::roll_back(uint64_t number, Problems* problems) {
  const auto policy = core_.snapshot()->policy;
  const policy::RulesHistory& all = *policy->history;
  const auto it = std::ranges::find(all, number, [](const auto& v) { return v->number; });
  if (it == all.end())
    return Status(Code::kNotFound,
                  fmt::format("no version {} of the rules; {}", number,
                              all.empty() ? "there is none"
                                          : fmt::format("{} to {} are remembered",
                                                        all.front()->number, all.back()->number)));
  Submission o;
  if ((*it)->config != nullptr) o.reading.config = *(*it)->config;
  o.reading.sha256 = (*it)->sha256;
  o.reading.files = o.reading.config.sources.files;
  o.source = fmt::format("rollback to {}", number);
  o.at_once = o.rollback = true;
  return submit(std::move(o), problems);
}

Status Rules::clear() {
  YARD_RETURN_IF_ERROR(check_reentry());
  unwatch();
  const Inside inside(this);
  YARD_ASSIGN_OR_RETURN(
      const uint64_t version,
      dispatch::set_file(core_, nullptr, {.source = "none"}, [](const auto&) { return true; }));
  {
    const std::lock_guard lock(lock_);
    problems_.clear();
  }
  if (version != 0) tell({ConfigEvent::Kind::kReloaded, version, "none", {}}, version, true);
  return {};
}

std::shared_ptr<const policy::FileRules> Rules::check(ConfigReading& reading) {
  const auto now = core_.snapshot();
  auto rules = make_rules(reading, *now->state, *now->policy, announced(loader_));
  if (rules == nullptr) return nullptr;
  validators.for_each([&](const ConfigValidator& call) {
    try {
      if (const Status verdict = call(reading.config); !verdict.ok())
        add_error(reading, "refused by a validator of the program: " + verdict.to_string(), "");
    } catch (...) {
      add_error(reading, "a validator of the program threw: " + base::current_exception_text(), "");
    }
  });
  return reading.ok() ? rules : nullptr;
}

// While one lives, a changed file that is watched is not put in force: the load may end its watch.
class Rules::Loading {
 public:
  Loading(Rules& of, Origin from) : of_(from == Origin::kFile ? &of : nullptr) { add(1); }
  ~Loading() { add(-1); }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

 private:
  void add(int n) {
    if (of_ == nullptr) return;
    const std::lock_guard lock(of_->lock_);
    of_->loads_ = std::max(0, of_->loads_ + n);  // a forked child starts at 0
  }
  Rules* const of_;
};

Status Rules::submit(Submission o, Problems* problems) {
  YARD_RETURN_IF_ERROR(check_reentry());
  const Inside inside(this);
  const Loading loading(*this, o.from);
  const auto start = Clock::now();
  const auto rules = check(o.reading);
  if (rules == nullptr && watch_ended(o)) return {};
  Done done;
  Status status;
  if (rules != nullptr) {
    auto published = put_in_force(o, rules);
    status = published.status();
    if (published.ok()) done = *published;
  }
  if (done.watch_ended) return {};
  if (status.ok()) status = first_error(o.reading.problems);
  {
    const std::lock_guard lock(lock_);
    if (status.ok()) {
      ++stats_.applied;
      stats_.last_ns = static_cast<uint64_t>((Clock::now() - start).count());
      stats_.total_ns += stats_.last_ns;
    } else {
      ++stats_.refused;
      stats_.last_error = status.to_string();
    }
  }
  report(std::move(o), status, done, rules.get(), problems);
  return status;
}

Result<Rules::Done> Rules::put_in_force(Submission& o,
                                        const std::shared_ptr<const policy::FileRules>& rules) {
  const policy::RulesVersion version{.sha256 = o.reading.sha256, .source = o.source};
  for (;;) {
    const auto in_force = core_.snapshot()->policy->file;
    // Other rules that came into force meanwhile may have ended the watch.
    if (watch_ended(o)) return Done{0, false, true};
    for (const dispatch::UnservedCall& u : dispatch::unserved_under(core_, rules))
      add_error(o.reading, unserved_text(u), serves_text(u));
    if (!o.reading.ok()) return Done{};
    const auto still = [&](const policy::ProcessPolicy& p) { return p.file == in_force; };
    // Without rules in force there is nothing to compare a rollout with.
    if (rules->config.rollout && !o.at_once && in_force != nullptr) {
      YARD_ASSIGN_OR_RETURN(const bool began, dispatch::begin_rollout(core_, rules, still));
      if (!began) continue;
      YARD_RETURN_IF_ERROR(follow_rollout(o, version, rules));
      return Done{0, true};
    }
    YARD_ASSIGN_OR_RETURN(const uint64_t number, dispatch::set_file(core_, rules, version, still));
    if (number != 0) return Done{number};
  }
}

void Rules::report(Submission o, const Status& status, const Done& done,
                   const policy::FileRules* rules, Problems* problems) {
  if (!status.ok() && o.reading.ok()) add_error(o.reading, status.to_string(), "");
  if (problems != nullptr) *problems = o.reading.problems;
  const bool watched = o.from == Origin::kWatchedFile;
  {
    const std::lock_guard lock(lock_);
    // The same text of a watched file is refused once.
    if (watched && !status.ok() && watched_.refused && watched_.seen == o.reading.sha256) return;
  }
  log_problems(o.reading.problems);
  {
    const std::lock_guard lock(lock_);
    if (watched && watched_.path == o.source) {
      watched_.seen = o.reading.sha256, watched_.refused = !status.ok();
      if (status.ok()) watched_.good = watched_.seen;
    }
    problems_ = o.reading.problems;
    // Rules in rollout do not end the watch of the file that stays in force.
    const bool asks = wants_hot_reload(o.reading.config);
    if (status.ok() && o.from == Origin::kFile && (asks || !done.rollout))
      watch_loaded(o.source, o.reading.sha256, asks);
  }
  using Kind = ConfigEvent::Kind;
  std::string started;
  if (done.rollout) {
    const RolloutRule& rule = *rules->config.rollout;
    started = fmt::format("{}: rollout started: {:g} % of calls for {:g} s", o.source, rule.percent,
                          rule.hold_s);
    for (const auto& [name, value] : rule.labels)
      started += fmt::format(", of those with {}={}", name, value);
  }
  const Kind kind = !status.ok()   ? Kind::kRefused
                    : done.rollout ? Kind::kRollout
                    : o.rollback   ? Kind::kRolledBack
                                   : Kind::kReloaded;
  tell({kind, done.version, std::move(o.source), std::move(o.reading.problems)}, done.version,
       o.by_program, std::move(started));
}

void Rules::tell(ConfigEvent event, uint64_t version, bool by_program, std::string text) {
  using Kind = ConfigEvent::Kind;
  if (version == 0 && in_force() != nullptr) event.version = in_force()->number;
  // The problems have been logged already. What the program does itself, it knows; the rest an operator must see.
  const bool own = by_program && event.kind != Kind::kRefused && text.empty();
  const LogLevel level = event.kind == Kind::kAborted ? LogLevel::kError
                         : own                        ? LogLevel::kInfo
                                                      : LogLevel::kWarn;
  if (text.empty()) text = to_string(ConfigEvent{event.kind, event.version, event.source, {}});
  base::log_event(level, "policy", text);
  const bool heard = !listeners.empty();
  Status posted;
  const auto post = [&](ConfigEvent e) {
    if (!heard) return;
    Status status = listeners_thread_.post([this, e = std::move(e)] {
      listeners.for_each([&](const ConfigListener& call) {
        try {
          call(e);
        } catch (...) {
          base::log(LogLevel::kError, "policy",
                    "a listener for rules threw: " + base::current_exception_text());
        }
      });
    });
    if (!status.ok()) posted = std::move(status);
  };
  {
    const std::lock_guard lock(lock_);
    if (version == 0) {
      post(std::move(event));
    } else {
      // A thread that published an earlier version may not have come here yet. One that failed never does.
      constexpr size_t kMostUntold = 16;
      untold_.emplace(version, std::move(event));
      while (!untold_.empty() &&
             (untold_.begin()->first <= told_ + 1 || untold_.size() > kMostUntold)) {
        auto next = untold_.extract(untold_.begin());
        told_ = std::max(told_, next.key());
        post(std::move(next.mapped()));
      }
    }
  }
  if (!posted.ok()) base::log(LogLevel::kError, "policy", posted.to_string());
}

// ---- Rollouts ----

Status Rules::follow_rollout(const Submission& o, const policy::RulesVersion& version,
                             const std::shared_ptr<const policy::FileRules>& rules) {
  const RolloutRule& rule = *rules->config.rollout;
  auto rollout = std::make_shared<ActiveRollout>();
  rollout->rules = rules, rollout->version = version, rollout->from = o.from;
  rollout->end = Clock::now() + seconds(rule.hold_s);
  // Often enough to take bad rules back early.
  rollout->interval = std::clamp<std::chrono::nanoseconds>(
      seconds(rule.hold_s / 20), std::chrono::milliseconds(5), std::chrono::seconds(1));
  Status scheduled = schedule(rollout, Clock::now() + rollout->interval);
  if (!scheduled.ok()) dispatch::end_rollout(core_, rules.get()).status().ignore();
  return scheduled;
}

Status Rules::schedule(const std::shared_ptr<const ActiveRollout>& rollout,
                       Clock::time_point when) {
  return rollout_thread_.post_at(when, [this, rollout] { advance_rollout(rollout); });
}

void Rules::advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout) {
  const Inside inside(this);
  const policy::FileRules* const rules = rollout->rules.get();
  const std::string& source = rollout->version.source;
  const auto policy = core_.snapshot()->policy;
  if (!dispatch::is_in_rollout(*policy, rules)) return;  // other rules have been submitted since
  const auto now = Clock::now();
  const bool over = now >= rollout->end;
  policy::RolloutResult r = policy->rollout->result(over);
  if (r.too_bad.empty() && !over)
    return schedule(rollout, std::min(now + rollout->interval, rollout->end)).ignore();

  Problems problems;
  uint64_t version = 0;
  const auto add = [&](std::string found, std::string right = {}) {
    problems.push_back(
        {Severity::kError, source, 0, 0, "rollout", std::move(found), std::move(right)});
  };
  if (!r.too_bad.empty()) {
    add(std::move(r.too_bad));
  } else {
    // Calls and kernels may have changed since the rules were checked.
    for (const dispatch::UnservedCall& u : dispatch::unserved_under(core_, rollout->rules))
      add(unserved_text(u), serves_text(u));
    if (problems.empty()) {
      const auto set =
          dispatch::set_file(core_, rollout->rules, rollout->version,
                             [&](const auto& p) { return dispatch::is_in_rollout(p, rules); });
      if (set.ok() && *set == 0) return;
      if (set.ok())
        version = *set;
      else
        add(set.status().to_string());
    }
  }
  if (!problems.empty()) {
    const auto ended = dispatch::end_rollout(core_, rules);
    if (!ended.ok())
      add(ended.status().to_string());
    else if (!*ended)
      return;
  }
  std::string text = fmt::format("{}: rollout {}: ", source, version != 0 ? "promoted" : "aborted");
  if (version != 0)
    text += fmt::format("{} calls, {} failed; {} results checked, {} wrong", r.calls, r.failed,
                        r.checked, r.wrong);
  for (const ConfigProblem& p : problems)
    text += (&p == problems.data() ? "" : "; ") + p.found + (p.right.empty() ? "" : "; " + p.right);
  {
    const std::lock_guard lock(lock_);
    if (version == 0) {
      problems_ = problems;
      ++stats_.aborted;
    } else if (rollout->from == Origin::kFile && !wants_hot_reload(rules->config)) {
      watch_loaded(source, rollout->version.sha256, false);
    }
  }
  tell({version != 0 ? ConfigEvent::Kind::kReloaded : ConfigEvent::Kind::kAborted, version, source,
        std::move(problems)},
       version, false, std::move(text));
}

// ---- What there is ----

std::shared_ptr<const policy::RulesVersion> Rules::in_force() const {
  const auto history = core_.snapshot()->policy->history;
  return history->empty() ? nullptr : history->back();
}

std::vector<ConfigVersion> Rules::history() {
  const auto history = core_.snapshot()->policy->history;
  std::vector<ConfigVersion> to;
  const Config none;
  const auto value = [&](const std::shared_ptr<const Config>& c) -> const Config& {
    return c != nullptr ? *c : none;
  };
  for (const auto& v : *history) {
    std::string sha256 = v->sha256;
    if (sha256.empty())
      if (auto digest = base::sha256(to_yaml(value(v->config))); digest.ok()) sha256 = *digest;
    to.push_back({v->number, std::move(sha256), v->time, v->source,
                  diff(value(v->before), value(v->config)), false});
  }
  if (!to.empty()) to.back().in_force = true;
  return to;
}

Rules::Standing Rules::standing() {
  Standing to;
  if (const auto v = in_force())
    to.version = v->number, to.source = v->source, to.rules = v->config != nullptr;
  const std::lock_guard lock(lock_);
  to.watched = watched_.path, to.watched_for_file = watched_.by_mode;
  return to;
}

ReloadStats Rules::stats() {
  const std::lock_guard lock(lock_);
  return stats_;
}

void Rules::reset_stats() {
  const std::lock_guard lock(lock_);
  stats_ = {};
}

Problems Rules::problems() {
  const std::lock_guard lock(lock_);
  return problems_;
}

}  // namespace yard::rules
