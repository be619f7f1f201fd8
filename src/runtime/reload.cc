// SPDX-License-Identifier: Apache-2.0
// The pipeline: check, ask validators, dry run, publish, remember, tell.
#include "runtime/reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/digest.h"
#include "base/log.h"
#include "dispatch/policy_changes.h"
#include "runtime/config.h"

namespace yard::runtime {
namespace {

// Pipelines that the thread is inside of.
struct Inside {
  const Reloader* reloader;
  Inside* outer;
};
thread_local Inside* t_inside = nullptr;

class Entered {
 public:
  explicit Entered(const Reloader* r) : inside_{r, t_inside} { t_inside = &inside_; }
  ~Entered() { t_inside = inside_.outer; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Inside inside_;
};

void add_error(ConfigReading& reading, std::string found, std::string right) {
  reading.problems.push_back({Severity::kError, reading.files.empty() ? "" : reading.files[0], 0, 0,
                              "", std::move(found), std::move(right)});
}

// What goes wrong inside a callback, in words; empty if nothing does.
template <class F>
std::string caught(const F& f) {
  try {
    f();
    return "";
  } catch (const std::exception& e) {
    return fmt::format("an exception: {}", e.what());
  } catch (...) {
    return "an exception";
  }
}

}  // namespace

Reloader::Reloader(detail::Core& core, std::function<std::vector<std::string>()> announced)
    : core_(core),
      announced_(std::move(announced)),
      watcher_([this] { return look(); }),
      in_child_([this] { watch_again(); }) {}
Reloader::~Reloader() {
  // Listeners may use everything here, so they end first.
  keeper_.stop();
  events_.stop();
  unwatch();
}

Status Reloader::not_here() const {
  bool inside = select::inside_select();
  for (const Inside* i = t_inside; i != nullptr; i = i->outer) inside |= i->reloader == this;
  if (!inside) return {};
  return Status(Code::kWouldDeadlock,
                "a validator, probe, verifier or cost hint must not change the rules");
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

uint64_t Reloader::add(ConfigListener listener) {
  State& s = state_.get();
  const std::lock_guard lock(s.lock.for_changes);
  s.listeners[s.next_id] = std::make_shared<Callback<ConfigListener>>(std::move(listener));
  return s.next_id++;
}

uint64_t Reloader::add(ConfigValidator validator) {
  State& s = state_.get();
  const std::lock_guard lock(s.lock.for_changes);
  s.validators[s.next_id] = std::make_shared<Callback<ConfigValidator>>(std::move(validator));
  return s.next_id++;
}

void Reloader::remove(uint64_t id) {
  State& s = state_.get();
  remove_callback(s.lock.for_changes, s.listeners, id);
  remove_callback(s.lock.for_changes, s.validators, id);
}

void Reloader::validate(ConfigReading& reading, State& s) {
  Callbacks<ConfigValidator> all;
  {
    const std::lock_guard lock(s.lock);
    all = s.validators;
  }
  for_each_callback(s.lock.for_changes, s.validators, all, [&](const ConfigValidator& call) {
    Status verdict;
    const std::string thrown = caught([&] { verdict = call(reading.config); });
    if (!thrown.empty())
      add_error(reading, "a validator of the program has ended by " + thrown, "");
    else if (!verdict.ok())
      add_error(reading, "refused by a validator of the program: " + verdict.to_string(), "");
  });
}

std::shared_ptr<const policy::FileRules> Reloader::check(ConfigReading& reading, State& s) {
  const auto now = core_.snapshot();
  const auto rules = make_rules(reading, *now->state, *now->policy->modes, announced_());
  if (rules == nullptr) return nullptr;
  if (rules->config.rollout) check_canary(*rules->config.rollout, reading);
  validate(reading, s);
  if (!reading.ok()) return nullptr;
  for (const detail::UnservedCall& o : detail::unserved_under(core_, rules))
    add_error(reading, fmt::format("{} would be left without a kernel ({})", o.call, o.why),
              fmt::format("{} serves it now", o.kernel));
  return reading.ok() ? rules : nullptr;
}

bool Reloader::repeated(const Offer& o, const State& s) const {
  return o.watched() && s.refused && s.seen == o.reading.sha256 &&
         s.seen_problems == o.reading.problems;
}

Status Reloader::offer(Offer o, Problems* problems) {
  YARD_RETURN_IF_ERROR(not_here());
  State& s = state_.get();
  const std::lock_guard one(s.pipeline);
  const Entered entered(this);
  if (o.from == From::kWatcher) {
    // What came into force while this waited may have ended the watch.
    const std::lock_guard lock(s.lock);
    if (s.path != o.source || s.watches != o.watch) return {};
  }
  const auto rules = check(o.reading, s);
  Status status = first_error(o.reading.problems);
  // Where there are no rules yet, there is nothing to go on with meanwhile.
  const bool in_rollout = rules != nullptr && rules->config.rollout && o.from != From::kEarlier &&
                          core_.snapshot()->policy->file != nullptr;
  if (in_rollout) {
    status = begin_rollout(s, o, rules);
  } else if (rules != nullptr) {
    status = detail::set_file(core_, rules);
    if (status.ok()) s.rollout = nullptr;
  }
  if (!status.ok() && o.reading.ok()) add_error(o.reading, status.to_string(), "");
  if (problems != nullptr) *problems = o.reading.problems;

  {
    const std::lock_guard lock(s.lock);
    if (!status.ok() && repeated(o, s)) return status;
  }
  for (const ConfigProblem& p : o.reading.problems)
    base::log_event(p.severity == Severity::kError ? LogLevel::kError : LogLevel::kWarn, "policy",
                    yard::to_string(p));
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (o.watched() && s.path == o.source) {
      s.seen = o.reading.sha256, s.refused = !status.ok(), s.seen_problems = o.reading.problems;
      if (status.ok()) s.good = s.seen;
    }
    s.problems = o.reading.problems;
    // What is in rollout does not end the watch of what stays in force.
    if (status.ok() && (o.from == From::kLoadHot || !in_rollout))
      watch_loaded(s, o.from, o.source, o.reading.sha256);
    if (status.ok() && !in_rollout)
      remember(s, std::move(o.reading.sha256), o.source,
               std::make_shared<const Config>(rules->config));
  }
  const std::lock_guard lock(s.lock);
  using Kind = ConfigEvent::Kind;
  tell(s, {!status.ok()               ? Kind::kRefused
           : in_rollout               ? Kind::kRollout
           : o.from == From::kEarlier ? Kind::kRolledBack
                                      : Kind::kReloaded,
           s.last, std::move(o.source), std::move(o.reading.problems)});
  return status;
}

Status Reloader::clear() {
  YARD_RETURN_IF_ERROR(not_here());
  unwatch();
  State& s = state_.get();
  const std::lock_guard one(s.pipeline);
  YARD_RETURN_IF_ERROR(detail::set_file(core_, nullptr));
  s.rollout = nullptr;
  {
    const std::lock_guard lock(s.lock.for_changes);
    s.problems.clear();
    if (s.in_force() == nullptr || s.in_force()->config == nullptr) return {};
    remember(s, "", "none", nullptr);
  }
  const std::lock_guard lock(s.lock);
  tell(s, {ConfigEvent::Kind::kReloaded, s.last, "none", {}});
  return {};
}

void Reloader::remember(State& s, std::string sha256, std::string source,
                        std::shared_ptr<const Config> config) {
  auto before = s.in_force() != nullptr ? s.in_force()->config : nullptr;
  s.history.push_back({++s.last, std::move(sha256), std::chrono::system_clock::now(),
                       std::move(source), std::move(config), std::move(before)});
  if (s.history.size() > kConfigHistory) s.history.pop_front();
}

void Reloader::tell(State& s, ConfigEvent event) {
  const bool refused = event.kind == ConfigEvent::Kind::kRefused;
  // The problems have been logged one by one.
  ConfigEvent brief = event;
  brief.problems.clear();
  base::log_event(refused ? LogLevel::kWarn : LogLevel::kInfo, "policy", to_string(brief));
  if (s.listeners.empty()) return;
  const auto task = [&s, all = s.listeners, event = std::move(event)] {
    for_each_callback(s.lock.for_changes, s.listeners, all, [&](const ConfigListener& call) {
      const std::string thrown = caught([&] { call(event); });
      if (!thrown.empty())
        base::log(LogLevel::kError, "policy", "a listener for rules has ended by " + thrown);
    });
  };
  const Status posted = events_.post(task);
  if (!posted.ok()) base::log(LogLevel::kError, "policy", posted.to_string());
}

Status Reloader::set(Config config, Problems* problems) {
  Offer o;
  o.reading.config = std::move(config);
  o.source = "set_config";
  return offer(std::move(o), problems);
}

Status Reloader::roll_back(uint64_t number, Problems* problems) {
  Offer o;
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
  o.from = From::kEarlier;
  return offer(std::move(o), problems);
}

std::vector<ConfigVersion> Reloader::history() {
  std::deque<Version> all;
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock);
    all = s.history;
  }
  // What takes its time is done here, so that no change pays for it.
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
