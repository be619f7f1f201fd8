// SPDX-License-Identifier: Apache-2.0
// The pipeline and rollouts.
#include "runtime/reload.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/results.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "runtime/rules.h"

namespace yard::runtime {
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
template <class Log>
void log_problems(const std::vector<ConfigProblem>& problems, const Log& log) {
  constexpr size_t kMost = 20;
  size_t count = 0;
  for (const Severity severity : {Severity::kError, Severity::kWarning})
    for (const ConfigProblem& p : problems)
      if (p.severity == severity && ++count <= kMost)
        log(severity == Severity::kError ? LogLevel::kError : LogLevel::kWarn, yard::to_string(p));
  if (count > kMost)
    log(LogLevel::kWarn,
        fmt::format("{} more problems; `yard config check` lists them", count - kMost));
}

}  // namespace

// Pipelines that the thread is inside of.
thread_local Reloader::InPipeline* Reloader::t_inside = nullptr;

Reloader::InPipeline::InPipeline(const Reloader* of) : of_(of), outer_(t_inside) {
  t_inside = this;
}

Status Reloader::InPipeline::enter(State& s) {
  // By this clock: the thread sanitizer does not know the function that waits by the steady one.
  lock_ = std::unique_lock(s.pipeline, std::chrono::system_clock::now() + kLongestWait);
  if (lock_.owns_lock()) return {};
  return Status(Code::kWouldDeadlock,
                fmt::format("another change of the rules has been under way for {} s; plugin code "
                            "that it runs may be waiting for this thread",
                            kLongestWait.count()));
}

Reloader::InPipeline::~InPipeline() {
  if (lock_) lock_.unlock();
  base::if_memory_allows([&] {
    for (const auto& [level, text] : messages_) base::log_event(level, "policy", text);
  });
  logged_.set_value();
  t_inside = outer_;
}

Reloader::Reloader(detail::Core& core, plugin::Loader& loader)
    : core_(core),
      loader_(loader),
      watcher_([this] { return reread(); }),
      in_child_([this] { restart_watch(); }) {}
Reloader::~Reloader() {
  // Rollouts and listeners may use everything here, so they end first.
  rollout_thread_.stop();
  listeners_thread_.stop();
  unwatch();
}

Status Reloader::check_reentry() const {
  bool inside = select::inside_select();
  for (const InPipeline* i = t_inside; i != nullptr; i = i->outer_) inside |= i->of_ == this;
  if (!inside) return {};
  return Status(Code::kWouldDeadlock,
                "a validator, log sink, probe, verifier or cost hint must not change the rules");
}

void Reloader::State::inherit(State& parents) {
  history = parents.history;
  last = parents.last;
  problems = parents.problems;
  next_id = parents.next_id;
  path = parents.path, settings = parents.settings;
  by_mode = parents.by_mode, watched_from = parents.watched_from, watches = parents.watches;
  seen = parents.seen, refused = parents.refused, seen_problems = parents.seen_problems;
  good = parents.good;
  listeners = inherited(parents.listeners);
  validators = inherited(parents.validators);
}

template <class F>
uint64_t Reloader::add_to(Callbacks<F> State::*to, F callback) {
  State& s = state_.get();
  const std::lock_guard lock(s.lock.for_changes);
  (s.*to)[s.next_id] = std::make_shared<Callback<F>>(std::move(callback));
  return s.next_id++;
}
uint64_t Reloader::add(ConfigListener f) { return add_to(&State::listeners, std::move(f)); }
uint64_t Reloader::add(ConfigValidator f) { return add_to(&State::validators, std::move(f)); }

void Reloader::remove(uint64_t id) {
  State& s = state_.get();
  remove_callback(s.lock.for_changes, s.listeners, id);
  remove_callback(s.lock.for_changes, s.validators, id);
}

void Reloader::validate(ConfigReading& reading) {
  State& s = state_.get();
  Callbacks<ConfigValidator> all;
  {
    const std::lock_guard lock(s.lock);
    all = s.validators;
  }
  for_each_callback(s.lock.for_changes, s.validators, all, [&](const ConfigValidator& call) {
    try {
      if (const Status verdict = call(reading.config); !verdict.ok())
        add_error(reading, "refused by a validator of the program: " + verdict.to_string(), "");
    } catch (...) {
      add_error(reading, "a validator of the program threw: " + base::current_exception_text(), "");
    }
  });
}

std::shared_ptr<const policy::FileRules> Reloader::check(ConfigReading& reading) {
  const auto now = core_.snapshot();
  auto rules = make_rules(reading, *now->state, *now->policy, announced(loader_));
  if (rules != nullptr) validate(reading);
  return reading.ok() ? rules : nullptr;
}

Result<std::vector<dispatch::UnservedCall>> Reloader::dry_run_and_enter(
    InPipeline& inside, const std::shared_ptr<const policy::FileRules>& rules) {
  for (;;) {
    const auto in_force = core_.snapshot()->policy->file;
    auto unserved = dispatch::unserved_under(core_, rules);
    YARD_RETURN_IF_ERROR(inside.enter(state_.get()));
    if (core_.snapshot()->policy->file == in_force) return unserved;
    inside.leave();
  }
}

bool Reloader::repeated(const Submission& o, const State& s) const {
  return o.watched() && s.refused && s.seen == o.reading.sha256 &&
         s.seen_problems == o.reading.problems;
}

Status Reloader::submit(Submission o, Problems* problems) {
  YARD_RETURN_IF_ERROR(check_reentry());
  InPipeline inside(this);
  auto time = base::Stopwatch::start();
  auto rules = check(o.reading);
  if (rules == nullptr) {
    YARD_RETURN_IF_ERROR(inside.enter(state_.get()));
  } else {
    YARD_ASSIGN_OR_RETURN(const auto unserved, dry_run_and_enter(inside, rules));
    for (const dispatch::UnservedCall& u : unserved)
      add_error(o.reading, unserved_text(u), serves_text(u));
    if (!o.reading.ok()) rules = nullptr;
  }
  State& s = state_.get();
  if (o.from == Origin::kWatcher) {
    // Other rules that came into force meanwhile may have ended the watch.
    const std::lock_guard lock(s.lock);
    if (s.path != o.source || s.watches != o.watch) return {};
  }
  Status status = first_error(o.reading.problems);
  // Made before the rules are in force: nothing is allocated for the history after that.
  std::list<Version> version;
  if (rules != nullptr) version = new_version(s, o.reading.sha256, o.source, &rules->config);
  // Without rules in force there is nothing to compare with.
  const bool in_rollout = rules != nullptr && rules->config.rollout &&
                          o.from != Origin::kRollback && o.from != Origin::kChange &&
                          core_.snapshot()->policy->file != nullptr;
  if (in_rollout) {
    status = begin_rollout(s, o, rules);
  } else if (rules != nullptr) {
    status = dispatch::set_file(core_, rules);
    if (status.ok()) s.rollout = nullptr;
  }
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (status.ok() && !in_rollout) remember(s, std::move(version));
    ++(status.ok() ? s.stats.applied : s.stats.refused);
    if (status.ok())
      s.stats.total_ns += s.stats.last_ns = static_cast<uint64_t>(time.lap());
    else
      base::if_memory_allows([&] { s.stats.last_error = status.to_string(); });
  }
  base::if_memory_allows(
      [&] { report(inside, std::move(o), status, in_rollout ? rules.get() : nullptr, problems); });
  return status;
}

void Reloader::report(InPipeline& inside, Submission o, const Status& status,
                      const policy::FileRules* in_rollout, Problems* problems) {
  State& s = state_.get();
  if (!status.ok() && o.reading.ok()) add_error(o.reading, status.to_string(), "");
  if (problems != nullptr) *problems = o.reading.problems;
  {
    const std::lock_guard lock(s.lock);
    if (!status.ok() && repeated(o, s)) return;
  }
  log_problems(o.reading.problems,
               [&](LogLevel level, std::string text) { inside.log(level, std::move(text)); });
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (o.watched() && s.path == o.source) {
      s.seen = o.reading.sha256, s.refused = !status.ok(), s.seen_problems = o.reading.problems;
      if (status.ok()) s.good = s.seen;
    }
    s.problems = o.reading.problems;
    // Rules in rollout do not end the watch of the file that stays in force.
    if (status.ok() && (o.from == Origin::kLoadAndWatch || in_rollout == nullptr))
      watch_loaded(s, o.from, o.source, o.reading.sha256);
  }
  using Kind = ConfigEvent::Kind;
  std::string started;
  if (status.ok() && in_rollout != nullptr) {
    const RolloutRule& rule = *in_rollout->config.rollout;
    started = fmt::format("{}: rollout started: {:g} % of calls for {:g} s", o.source, rule.percent,
                          rule.hold_s);
    for (const auto& [name, value] : rule.labels)
      started += fmt::format(", of those with {}={}", name, value);
  }
  notify(inside,
         {!status.ok()                  ? Kind::kRefused
          : in_rollout != nullptr       ? Kind::kRollout
          : o.from == Origin::kRollback ? Kind::kRolledBack
                                        : Kind::kReloaded,
          0, std::move(o.source), std::move(o.reading.problems)},
         o.from != Origin::kWatcher, std::move(started));
}

Status Reloader::begin_rollout(State& s, const Submission& o,
                               std::shared_ptr<const policy::FileRules> rules) {
  const RolloutRule& rule = *rules->config.rollout;
  auto rollout = std::make_shared<ActiveRollout>();
  rollout->rules = rules, rollout->sha256 = o.reading.sha256, rollout->source = o.source;
  rollout->from = o.from;
  rollout->end = Clock::now() + seconds(rule.hold_s);
  // Often enough to take bad rules back early.
  rollout->interval = std::clamp<std::chrono::nanoseconds>(
      seconds(rule.hold_s / 20), std::chrono::milliseconds(5), std::chrono::seconds(1));
  // The check that will end it comes first: it waits for the pipeline, and ignores rollouts that are not current.
  YARD_RETURN_IF_ERROR(rollout_thread_.post_at(Clock::now() + rollout->interval,
                                               [this, rollout] { advance_rollout(rollout); }));
  YARD_RETURN_IF_ERROR(dispatch::begin_rollout(core_, rules, rule));
  s.rollout = std::move(rollout);
  return {};
}

Reloader::Problems Reloader::end_rollout(const ActiveRollout& rollout, std::string too_bad,
                                         const std::vector<dispatch::UnservedCall>& unserved) {
  Problems problems;
  const auto add = [&](std::string found, std::string right) {
    problems.push_back(
        {Severity::kError, rollout.source, 0, 0, "rollout", std::move(found), std::move(right)});
  };
  if (!too_bad.empty()) add(std::move(too_bad), "");
  for (const dispatch::UnservedCall& u : unserved) add(unserved_text(u), serves_text(u));
  if (problems.empty())
    if (const Status status = dispatch::set_file(core_, rollout.rules); !status.ok())
      add(status.to_string(), "");
  if (!problems.empty())
    if (const Status status = dispatch::end_rollout(core_); !status.ok())
      add(status.to_string(), "");
  return problems;
}

void Reloader::advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout) {
  InPipeline inside(this);
  State& s = state_.get();
  const auto check_again_at = [&](Clock::time_point next) {
    rollout_thread_.post_at(next, [this, rollout] { advance_rollout(rollout); }).ignore();
  };
  if (!inside.enter(s).ok()) return check_again_at(Clock::now() + rollout->interval);
  if (s.rollout != rollout) return;  // other rules have been submitted since
  const auto measured = core_.snapshot()->policy->rollout;
  if (measured == nullptr) {
    s.rollout = nullptr;
    return;
  }
  const auto now = Clock::now();
  const bool over = now >= rollout->end;
  policy::RolloutResult r = measured->result(over);
  if (r.too_bad.empty() && !over)
    return check_again_at(std::min(now + rollout->interval, rollout->end));
  std::vector<dispatch::UnservedCall> unserved;
  if (r.too_bad.empty()) {
    // Calls and kernels may have changed since the rules were checked.
    inside.leave();
    auto found = dry_run_and_enter(inside, rollout->rules);
    if (!found.ok()) return check_again_at(now + rollout->interval);
    unserved = *std::move(found);
    if (state_.get().rollout != rollout) return;
  }
  // Made before the rules are in force, as in submit().
  std::list<Version> version =
      new_version(s, rollout->sha256, rollout->source, &rollout->rules->config);
  s.rollout = nullptr;
  std::vector<ConfigProblem> problems = end_rollout(*rollout, std::move(r.too_bad), unserved);
  const bool in_force = problems.empty();
  std::string text =
      fmt::format("{}: rollout {}: ", rollout->source, in_force ? "promoted" : "aborted");
  if (in_force)
    text += fmt::format("{} calls, {} failed; {} results checked, {} wrong", r.calls, r.failed,
                        r.checked, r.wrong);
  for (const ConfigProblem& p : problems)
    text += (&p == problems.data() ? "" : "; ") + p.found + (p.right.empty() ? "" : "; " + p.right);
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (in_force) {
      if (rollout->from == Origin::kLoad)
        watch_loaded(s, rollout->from, rollout->source, rollout->sha256);
      remember(s, std::move(version));
    } else {
      s.problems = problems;
      ++s.stats.aborted;
    }
  }
  notify(inside,
         {in_force ? ConfigEvent::Kind::kReloaded : ConfigEvent::Kind::kAborted, 0, rollout->source,
          std::move(problems)},
         false, std::move(text));
}

Status Reloader::clear() {
  YARD_RETURN_IF_ERROR(check_reentry());
  unwatch();
  State& s = state_.get();
  InPipeline inside(this);
  YARD_RETURN_IF_ERROR(inside.enter(s));
  std::list<Version> version = new_version(s, "", "none", nullptr);
  YARD_RETURN_IF_ERROR(dispatch::set_file(core_, nullptr));
  s.rollout = nullptr;
  {
    const std::lock_guard lock(s.lock.for_changes);
    s.problems.clear();
    if (s.in_force() == nullptr || s.in_force()->config == nullptr) return {};
    remember(s, std::move(version));
  }
  base::if_memory_allows([&] {
    notify(inside, {ConfigEvent::Kind::kReloaded, 0, "none", {}}, true);
  });
  return {};
}

std::list<Reloader::Version> Reloader::new_version(const State& s, std::string sha256,
                                                   std::string source, const Config* config) {
  std::list<Version> to;
  to.push_back({0, std::move(sha256), std::chrono::system_clock::now(), std::move(source),
                config != nullptr ? std::make_shared<const Config>(*config) : nullptr,
                s.in_force() != nullptr ? s.in_force()->config : nullptr});
  return to;
}

void Reloader::remember(State& s, std::list<Version> version) noexcept {
  version.back().number = ++s.last;
  s.history.splice(s.history.end(), version);
  if (s.history.size() > kConfigHistory) s.history.pop_front();
}

void Reloader::notify(InPipeline& inside, ConfigEvent event, bool by_program, std::string rollout) {
  State& s = state_.get();
  Callbacks<ConfigListener> all;
  {
    const std::lock_guard lock(s.lock);
    event.version = s.last;
    all = s.listeners;
  }
  // The problems have been logged already. What the program does itself, it knows; the rest an operator must see.
  ConfigEvent brief = event;
  brief.problems.clear();
  const bool own = by_program && event.kind != ConfigEvent::Kind::kRefused && rollout.empty();
  const LogLevel level = event.kind == ConfigEvent::Kind::kAborted ? LogLevel::kError
                         : own                                     ? LogLevel::kInfo
                                                                   : LogLevel::kWarn;
  inside.log(level, rollout.empty() ? to_string(brief) : std::move(rollout));
  if (all.empty()) return;
  // Posted here, in the order of the versions.
  const auto task = [&s, all = std::move(all), event = std::move(event),
                     logged = inside.logged_.get_future().share()] {
    logged.wait();
    for_each_callback(s.lock.for_changes, s.listeners, all, [&](const ConfigListener& call) {
      try {
        call(event);
      } catch (...) {
        base::log(LogLevel::kError, "policy",
                  "a listener for rules threw: " + base::current_exception_text());
      }
    });
  };
  const Status posted = listeners_thread_.post(task);
  if (!posted.ok()) inside.log(LogLevel::kError, posted.to_string());
}

Status Reloader::set(Config config, Problems* problems) {
  return submit(submission(std::move(config), "set_config", Origin::kValue), problems);
}

Status Reloader::change(Config config, std::string source, Problems* problems) {
  return submit(submission(std::move(config), std::move(source), Origin::kChange), problems);
}

Reloader::Submission Reloader::submission(Config config, std::string source, Origin from) {
  Submission o;
  o.reading.config = std::move(config);
  o.source = std::move(source);
  o.from = from;
  // Problems name their source.
  if (o.reading.config.sources.files.empty()) o.reading.config.sources.files = {o.source};
  o.reading.files = o.reading.config.sources.files;
  return o;
}

Reloader::Standing Reloader::standing() {
  State& s = state_.get();
  const std::lock_guard lock(s.lock);
  Standing to;
  if (const Version* v = s.in_force())
    to.version = v->number, to.source = v->source, to.rules = v->config != nullptr;
  to.watched = s.path, to.watched_for_file = s.by_mode;
  return to;
}

Status Reloader::roll_back(uint64_t number, Problems* problems) {
  Submission o;
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock);
    const auto it = std::find_if(s.history.begin(), s.history.end(),
                                 [&](const Version& v) { return v.number == number; });
    if (it == s.history.end()) {
      std::string known = s.history.empty() ? "there is none"
                                            : fmt::format("{} to {} are remembered",
                                                          s.history.front().number, s.last);
      return Status(Code::kNotFound, fmt::format("no version {} of the rules; {}", number, known));
    }
    if (it->config != nullptr) o.reading.config = *it->config;
    o.reading.sha256 = it->sha256;
    o.reading.files = o.reading.config.sources.files;
  }
  o.source = fmt::format("rollback to {}", number);
  o.from = Origin::kRollback;
  return submit(std::move(o), problems);
}

ReloadStats Reloader::stats() {
  State& s = state_.get();
  const std::lock_guard lock(s.lock);
  return s.stats;
}

void Reloader::reset_stats() {
  State& s = state_.get();
  const std::lock_guard lock(s.lock.for_changes);
  s.stats = {};
}

std::vector<ConfigVersion> Reloader::history() {
  std::list<Version> all;
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock);
    all = s.history;
  }
  // Digests and differences are computed here, so that changes stay quick.
  std::vector<ConfigVersion> to;
  const Config none;
  const auto value = [&](const std::shared_ptr<const Config>& c) -> const Config& {
    return c != nullptr ? *c : none;
  };
  for (Version& v : all) {
    if (v.sha256.empty())
      if (auto digest = base::sha256(to_yaml(value(v.config))); digest.ok())
        v.sha256 = *std::move(digest);
    to.push_back({v.number, std::move(v.sha256), v.time, std::move(v.source),
                  diff(value(v.before), value(v.config)), false});
  }
  if (!to.empty()) to.back().in_force = true;
  return to;
}

Reloader::Problems Reloader::problems() {
  State& s = state_.get();
  const std::lock_guard lock(s.lock);
  return s.problems;
}

}  // namespace yard::runtime
