// SPDX-License-Identifier: Apache-2.0
// Submitting rules: checks, dry run, publication, rollout, history and listeners.
#include <fmt/format.h>

#include <algorithm>

#include "base/events.h"
#include "base/file.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "rules/rules.h"

namespace yard::rules {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = ConfigEvent::Kind;

// The object that submits rules or ends a rollout on this thread.
thread_local constinit const Rules* t_inside = nullptr;

struct Inside {
  explicit Inside(const Rules* rules) : outer(std::exchange(t_inside, rules)) {}
  ~Inside() { t_inside = outer; }
  const Rules* const outer;
};

ConfigProblem error_of(const std::string& file, std::string path, std::string found,
                       std::string right = {}) {
  return {Severity::kError, file, 0, 0, std::move(path), std::move(found), std::move(right)};
}

std::string brief(const ConfigProblem& p) {
  return p.found + (p.right.empty() ? "" : "; " + p.right);
}

void add_unserved(const detail::Core& core, const std::shared_ptr<const policy::FileRules>& rules,
                  const std::string& file, const std::string& path, Problems& to) {
  for (const dispatch::MovedCall& u :
       dispatch::moved_under(core, rules, dispatch::Moved::kUnserved))
    to.push_back(error_of(file, path,
                          fmt::format("{} would be left without a kernel ({})", u.call, u.why),
                          fmt::format("{} serves it now", u.from)));
}

std::string first_file(const ConfigReading& reading) {
  return reading.files.empty() ? "" : reading.files[0];
}

}  // namespace

Rules::Rules(detail::Core& core, plugin::Loader& loader, std::function<void()> wake, Record record,
             std::string output_directory)
    : core_(core),
      loader_(loader),
      wake_(std::move(wake)),
      record_(std::move(record)),
      output_directory_(std::move(output_directory)),
      watcher_([this] { return reread(); }) {}

Rules::~Rules() {
  // Rollouts and listeners may use all members, so they end first.
  rollout_thread_.stop();
  listeners_thread_.stop();
  unwatch();
  write_events("");
}

Status Rules::check_reentry() const {
  if (!select::inside_select() && t_inside != this) return {};
  return Status(Code::kWouldDeadlock,
                "a validator, log sink, probe, verifier or cost hint must not change the rules");
}

Status Rules::change(Config config, std::string source, Problems* problems, bool at_once) {
  Submission o;
  o.source = std::move(source), o.at_once = at_once;
  // Problems need a source to name.
  if (config.sources.files.empty()) config.sources.files = {o.source};
  o.reading.files = config.sources.files;
  o.reading.config = std::move(config);
  return submit(std::move(o), problems);
}

Status Rules::roll_back(uint64_t number, Problems* problems) {
  const auto all = versions();
  const auto it = std::ranges::find(all, number, [](const auto& v) { return v->number; });
  if (it == all.end()) {
    std::string known = "there is none";
    if (!all.empty())
      known = fmt::format("{} to {} are remembered", all.front()->number, all.back()->number);
    return base::failure(Code::kNotFound, "no version {} of the rules; {}", number, known);
  }
  Submission o;
  if ((*it)->config != nullptr) o.reading.config = *(*it)->config;
  o.reading.sha256 = (*it)->sha256;
  o.reading.files = o.reading.config.sources.files;
  o.source = fmt::format("rollback to {}", number);
  o.at_once = true, o.kind = Kind::kRolledBack;
  return submit(std::move(o), problems);
}

Status Rules::clear() {
  YARD_RETURN_IF_ERROR(check_reentry());
  unwatch();
  const Inside inside(this);
  YARD_ASSIGN_OR_RETURN(const auto made, dispatch::set_file(core_, nullptr, {.source = "none"},
                                                            [](const auto&) { return true; }));
  {
    const std::lock_guard lock(lock_);
    problems_.clear();
  }
  if (made != nullptr) tell({Kind::kReloaded, 0, "none", {}}, made, true);
  return {};
}

// ---- Putting rules in force ----

Result<std::vector<dispatch::MovedCall>> Rules::dry_run(Config config) {
  YARD_RETURN_IF_ERROR(check_reentry());
  const Inside inside(this);
  ConfigReading reading;
  reading.config = std::move(config);
  const auto rules = check(reading);
  const Code code = rules == nullptr ? Code::kInvalidArgument : Code::kConflict;
  if (rules != nullptr) add_unserved(core_, rules, "", "", reading.problems);
  Status refused;
  for (const ConfigProblem& p : reading.problems)
    if (p.severity == Severity::kError)
      refused = refused.ok() ? Status(code, brief(p)) : std::move(refused).note(brief(p));
  if (!refused.ok()) return refused;
  return dispatch::moved_under(core_, rules, dispatch::Moved::kAll);
}

std::shared_ptr<const policy::FileRules> Rules::check(ConfigReading& reading) {
  auto rules = compile(reading);
  if (rules == nullptr) return nullptr;
  const auto refuse = [&](std::string why) {
    reading.problems.push_back(error_of(first_file(reading), "", std::move(why)));
  };
  validators.for_each([&](const ConfigValidator& call) {
    try {
      if (const Status verdict = call(rules->config); !verdict.ok())
        refuse("refused by a validator of the program: " + verdict.to_string());
    } catch (...) {
      refuse("a validator of the program threw: " + base::current_exception_text());
    }
  });
  return reading.ok() ? rules : nullptr;
}

Status Rules::submit(Submission o, Problems* problems) {
  YARD_RETURN_IF_ERROR(check_reentry());
  const Inside inside(this);
  const auto start = Clock::now();
  Status status;
  const auto rules = check(o.reading);
  if (rules != nullptr) status = put_in_force(o, rules);
  if (o.version == nullptr && o.kind != Kind::kRollout && watch_ended(o)) return {};
  if (status.ok())
    status = first_error(o.reading.problems);
  else
    o.reading.problems.push_back(error_of(o.source, "", status.to_string()));
  if (problems != nullptr) *problems = o.reading.problems;
  {
    const std::lock_guard lock(lock_);
    if (status.ok()) {
      ++stats_.applied;
      stats_.last_ns = static_cast<uint64_t>((Clock::now() - start).count());
      stats_.total_ns += stats_.last_ns;
      // Rules in rollout do not end the watch of the file that stays in force.
      const bool asks = wants_hot_reload(rules->config);
      if (asks || o.kind != Kind::kRollout)
        watch_as_asked(o.from, o.source, o.reading.sha256, asks);
    } else {
      o.kind = Kind::kRefused;
      ++stats_.refused;
      stats_.last_error = status.to_string();
    }
    if (o.from == Origin::kWatchedFile && watched_.path == o.source) {
      // Report the refusal of a text of the watched file only once.
      if (!status.ok() && watched_.refused == o.reading.sha256) return status;
      watched_.refused.reset();
      if (status.ok())
        watched_.good = o.reading.sha256;
      else
        watched_.refused = o.reading.sha256;
    }
    problems_ = o.reading.problems;
  }
  for (const ConfigProblem& p : o.reading.problems)
    base::log_event(p.severity == Severity::kError ? LogLevel::kError : LogLevel::kWarn, "policy",
                    yard::to_string(p));
  tell({o.kind, 0, std::move(o.source), std::move(o.reading.problems)}, o.version, !o.watch,
       std::move(o.started));
  return status;
}

Status Rules::put_in_force(Submission& o, const std::shared_ptr<const policy::FileRules>& rules) {
  const policy::RulesVersion version{.sha256 = o.reading.sha256, .source = o.source};
  for (;;) {
    const auto in_force = core_.snapshot()->policy->file;
    if (watch_ended(o)) return {};  // other rules came into force meanwhile
    add_unserved(core_, rules, first_file(o.reading), "", o.reading.problems);
    if (!o.reading.ok()) return {};
    // Loading a file may end a watch, and a change of the watched file must not replace that file.
    if (o.from == Origin::kFile) ++watch_number_;
    const auto still = [&](const policy::ProcessPolicy& p) {
      return p.file == in_force && !watch_ended(o);
    };
    // A rollout needs rules in force to compare with.
    if (!rules->config.rollout || o.at_once || in_force == nullptr) {
      YARD_ASSIGN_OR_RETURN(o.version, dispatch::set_file(core_, rules, version, still));
      if (o.version != nullptr) return {};
      continue;
    }
    YARD_ASSIGN_OR_RETURN(const bool began, dispatch::begin_rollout(core_, rules, still));
    if (!began) continue;
    const RolloutRule& rule = *rules->config.rollout;
    const std::chrono::nanoseconds hold(static_cast<int64_t>(rule.hold_s * 1e9));
    Status scheduled = schedule(std::make_shared<ActiveRollout>(
        ActiveRollout{rules, version, o.from, hold, Clock::now() + hold}));
    if (!scheduled.ok()) {
      dispatch::end_rollout(core_, rules.get()).status().ignore();
      return scheduled;
    }
    o.kind = Kind::kRollout;
    o.started =
        fmt::format("rollout started: {:g} % of calls for {:g} s", rule.percent, rule.hold_s);
    for (const auto& [name, value] : rule.labels)
      o.started += fmt::format(", of those with {}={}", name, value);
    return {};
  }
}

void Rules::tell(ConfigEvent event, const dispatch::PublishedRules& made, bool by_program,
                 std::string text) {
  const auto last = made != nullptr ? made : in_force();
  const uint64_t version = made != nullptr ? made->number : 0;
  event.version = last != nullptr ? last->number : 0;
  // The program knows what it does itself. An operator must see everything else.
  const bool own = by_program && event.kind != Kind::kRefused && text.empty();
  const LogLevel level = event.kind == Kind::kAborted ? LogLevel::kError
                         : own                        ? LogLevel::kInfo
                                                      : LogLevel::kWarn;
  base::record({.kind = made != nullptr                ? &base::event::kRules
                        : event.kind == Kind::kRollout ? &base::event::kRollout
                        : event.kind == Kind::kAborted ? &base::event::kAborted
                                                       : &base::event::kRulesRefused,
                .runtime = core_.id,
                .subject = event.source,
                .reason = text.empty() ? std::string(first_error(event.problems).message()) : text,
                .who = by_program && base::Actor::current().empty() ? "the program" : "",
                .number = version,
                .detail = made});
  text = !text.empty() ? event.source + ": " + text
                       : to_string(ConfigEvent{event.kind, event.version, event.source, {}});
  base::log_event(level, "policy", text);
  const bool heard = !listeners.empty();
  Status posted;
  {
    const std::lock_guard lock(lock_);
    untold_.emplace(version, std::move(event));
    // A thread that published an earlier version may come here later, or never if it failed.
    constexpr size_t kMostUntold = 16;
    while (!untold_.empty() &&
           (untold_.begin()->first <= told_ + 1 || untold_.size() > kMostUntold)) {
      const auto next = untold_.extract(untold_.begin());
      told_ = std::max(told_, next.key());
      if (!heard) continue;
      posted = listeners_thread_.post(
          [this, e = next.mapped()] { listeners.call_all("policy", "a listener for rules", e); });
    }
  }
  if (!posted.ok()) base::log(LogLevel::kError, "policy", posted.to_string());
}

// ---- Rollouts ----

Status Rules::schedule(const std::shared_ptr<const ActiveRollout>& rollout) {
  const auto interval = std::clamp<std::chrono::nanoseconds>(
      rollout->hold / 20, std::chrono::milliseconds(5), std::chrono::seconds(1));
  return rollout_thread_.post_at(std::min(Clock::now() + interval, rollout->end), [this, rollout] {
    if (base::or_out_of_memory([&] { advance_rollout(rollout); }).ok()) return;
    base::log_event(LogLevel::kError, "policy", "a rollout ran out of memory; it is judged later");
    rollout_thread_.repeat_at(Clock::now() + std::chrono::seconds(1));
  });
}

void Rules::advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout) {
  const Inside inside(this);
  const policy::FileRules* const rules = rollout->rules.get();
  const std::string& source = rollout->version.source;
  const auto policy = core_.snapshot()->policy;
  if (!dispatch::is_in_rollout(*policy, rules)) return;
  const bool over = Clock::now() >= rollout->end;
  policy::RolloutResult r = policy->rollout->result(over);
  if (r.too_bad.empty() && !over) return schedule(rollout).ignore();

  Problems problems;
  dispatch::PublishedRules version;
  const auto add = [&](std::string found) {
    problems.push_back(error_of(source, "rollout", std::move(found)));
  };
  if (!r.too_bad.empty())
    add(std::move(r.too_bad));
  else  // calls and kernels may have changed since the check
    add_unserved(core_, rollout->rules, source, "rollout", problems);
  if (problems.empty()) {
    const auto set =
        dispatch::set_file(core_, rollout->rules, rollout->version,
                           [&](const auto& p) { return dispatch::is_in_rollout(p, rules); });
    if (set.ok() && *set == nullptr) return;
    if (set.ok())
      version = *set;
    else
      add(set.status().to_string());
  }
  if (version == nullptr) {
    const auto ended = dispatch::end_rollout(core_, rules);
    if (ended.ok() && !*ended) return;
    if (!ended.ok()) add(ended.status().to_string());
  }
  std::string text = "rollout aborted: ";
  if (version != nullptr)
    text = fmt::format("rollout promoted: {} calls, {} failed; {} results checked, {} wrong",
                       r.calls, r.failed, r.checked, r.wrong);
  for (const ConfigProblem& p : problems) text += (&p == problems.data() ? "" : "; ") + brief(p);
  {
    const std::lock_guard lock(lock_);
    if (version == nullptr)
      problems_ = problems, ++stats_.aborted;
    else if (!wants_hot_reload(rules->config))
      watch_as_asked(rollout->from, source, rollout->version.sha256, false);
  }
  tell({version != nullptr ? Kind::kReloaded : Kind::kAborted, 0, source, std::move(problems)},
       version, false, std::move(text));
}

std::vector<dispatch::PublishedRules> Rules::versions() const {
  std::vector<dispatch::PublishedRules> to;
  for (const base::Event& e : base::events())
    if (e.kind == &base::event::kRules && e.runtime == core_.id && e.detail != nullptr)
      to.push_back(std::static_pointer_cast<const policy::RulesVersion>(e.detail));
  // The thread that published the last version may not have recorded it yet.
  if (const auto last = in_force(); last != nullptr && !base::contains(to, last))
    to.push_back(last);
  std::ranges::sort(to, {}, &policy::RulesVersion::number);
  return to;
}

std::vector<ConfigVersion> Rules::history() const {
  std::vector<ConfigVersion> to;
  const Config none;
  for (const auto& v : versions()) {
    const Config &now = v->config != nullptr ? *v->config : none,
                 &before = v->before != nullptr ? *v->before : none;
    const std::string sha256 = v->sha256.empty() ? base::sha256(to_yaml(now)) : v->sha256;
    to.push_back({v->number, sha256, v->time, v->source, diff(before, now), false});
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

Problems Rules::problems() {
  const std::lock_guard lock(lock_);
  Problems to = problems_;
  for (const ConfigProblem& p : later_problems_)
    if (!base::contains(to, p)) to.push_back(p);
  return to;
}

}  // namespace yard::rules
