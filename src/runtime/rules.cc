// SPDX-License-Identifier: Apache-2.0
// Checking rules, and following those in force.
#include "runtime/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "dispatch/policy_changes.h"
#include "policy/check.h"
#include "registry/declarations.h"

namespace yard::runtime {
namespace {

// The names that rules may use in this runtime.
class RuntimeNames final : public policy::Known {
 public:
  RuntimeNames(const registry::State& state, const policy::Modes& modes,
               const std::vector<std::string>& announced)
      : state_(state), modes_(modes), announced_(announced) {}

  std::vector<std::string> ops() const override {
    std::set<std::string> all(announced_.begin(), announced_.end());
    for (const auto& [name, op_record] : state_.op_records) all.insert(name);
    return {all.begin(), all.end()};
  }
  const op::Program* program(std::string_view op) const override {
    const registry::OpRecord* op_record = state_.find(op);
    return op_record != nullptr ? op_record->op->program.get() : nullptr;
  }
  std::vector<std::string> kernels(std::string_view op) const override {
    std::vector<std::string> ids;
    if (const registry::OpRecord* op_record = state_.find(op))
      for (const auto& [id, kernel] : op_record->kernels) ids.push_back(id);
    return ids;
  }
  std::vector<std::string> backends() const override {
    std::vector<std::string> names;
    for (const auto& [name, backend] : state_.backends) names.push_back(name);
    return names;
  }
  std::vector<std::string> vendors() const override {
    std::set<std::string> names;
    for (const auto& [name, backend] : state_.backends)
      if (!backend->vendor.empty()) names.insert(backend->vendor);
    return {names.begin(), names.end()};
  }

  std::vector<std::string> modes() const override {
    std::vector<std::string> names;
    for (const auto& [name, mode] : modes_) names.push_back(name);
    return names;
  }

  std::vector<std::string> functions() const override {
    std::set<std::string> names;
    for (const detail::FunctionSite* s : registry::function_sites())
      names.insert(s->group + "/" + s->name);
    for (const auto& h : state_.functions) names.insert(h->group + "/" + h->name);
    return {names.begin(), names.end()};
  }

 private:
  const registry::State& state_;
  const policy::Modes& modes_;
  const std::vector<std::string>& announced_;
};

}  // namespace

std::vector<std::string> announced_ops(plugin::Loader& loader) {
  std::vector<std::string> ops;
  for (const PluginInfo& p : loader.list())
    if (p.state == PluginState::kFound) ops.insert(ops.end(), p.ops.begin(), p.ops.end());
  return ops;
}

std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::Modes& modes,
                                                    const std::vector<std::string>& announced) {
  policy::RulesByOp compiled;
  policy::check_reading(reading, RuntimeNames(state, modes, announced), &compiled);
  if (!reading.ok()) return nullptr;
  auto rules = std::make_shared<policy::FileRules>(reading.config);
  for (const auto& [name, op_record] : state.op_records) {
    const auto it = compiled.find(name);
    rules->add(op_record->op->program, it != compiled.end() ? it->second : nullptr);
  }
  return rules;
}

Status first_error(const std::vector<ConfigProblem>& problems) {
  Status s;
  for (const ConfigProblem& p : problems) {
    if (p.severity != Severity::kError) continue;
    if (s.ok())
      s = Status(Code::kInvalidArgument, to_string(p));
    else
      s.note(to_string(p));
  }
  return s;
}

void RuleFollower::State::inherit(State& parents) {
  applied = parents.applied, wanted = parents.wanted, record = parents.record;
  recorder = parents.recorder;
  if (parents.switching) applied = nullptr, record.clear();  // the thread is not here: once more
}

void RuleFollower::Conditions::inherit(Conditions& parents) {
  checked = parents.checked, later_ops = parents.later_ops, problems = parents.problems;
}

void RuleFollower::follow() {
  apply_settings();
  check_later_ops();
}

void RuleFollower::apply_settings() {
  State& s = state_.get();
  bool news = false, sweep = false;
  {
    const std::lock_guard lock(s.lock);
    // Read under the lock: another thread may follow a later snapshot.
    const auto file = core_.snapshot()->policy->file;
    news = s.applied != file;
    if (news) {
      s.applied = file;
      const Config none;
      const ConfigSettings& settings = (file != nullptr ? file->config : none).settings;
      loader_.set_rules(settings.plugins.probe, settings.plugins.require_verified.value_or(false));
      s.wanted = settings.telemetry.record.value_or("");
      sweep = settings.cache.lifetime.has_value();
    }
  }
  if (sweep) wake_();
  if (news) switch_recording();
  loader_.enforce_rules();
}

// Publishing leads here again, so the lock is not held meanwhile. One thread goes on until what it did is what is wanted:
// nothing older comes last.
void RuleFollower::switch_recording() {
  State& s = state_.get();
  std::unique_lock lock(s.lock);
  if (s.switching) return;
  s.switching = true;
  while (s.record != s.wanted) {
    const std::string wanted = s.record = s.wanted;
    const std::shared_ptr<Recorder> mine = s.recorder.lock();
    lock.unlock();
    std::shared_ptr<Recorder> made;
    const Status status = record_to(mine, wanted, made);
    if (!status.ok())
      base::log(LogLevel::kError, "runtime",
                fmt::format("settings.telemetry.record: {}", status.to_string()));
    lock.lock();
    if (made != nullptr) s.recorder = made;
  }
  s.switching = false;
}

// A recording that the program or the environment has started is not ended by a file.
Status RuleFollower::record_to(const std::shared_ptr<Recorder>& mine, const std::string& path,
                               std::shared_ptr<Recorder>& made) {
  const auto now = std::dynamic_pointer_cast<Recorder>(core_.snapshot()->policy->observer);
  if (now != nullptr && now != mine) return {};
  if (now != nullptr) {
    YARD_RETURN_IF_ERROR(detail::set_observer(core_, nullptr));
    YARD_RETURN_IF_ERROR(now->recording().write());
  }
  if (path.empty()) return {};
  auto recording = Recording::open(path);
  if (!recording.ok()) return std::move(recording).status();
  made = std::make_shared<Recorder>(*std::move(recording));
  return detail::set_observer(core_, made);
}

bool RuleFollower::has_later_op(Conditions& s, const registry::State& registry) {
  bool found = false;
  for (const auto& [name, op_record] : registry.op_records) {
    const std::shared_ptr<const op::Program>& program = op_record->op->program;
    if (s.checked->knows(*program)) continue;
    std::shared_ptr<const op::Program>& seen = s.later_ops[name];
    if (seen == program) continue;
    seen = program;
    found = found || s.checked->concerns(name);
  }
  return found;
}

void RuleFollower::check_later_ops() {
  std::vector<ConfigProblem> news;
  {
    Conditions& s = conditions_.get();
    const std::lock_guard lock(s.lock);
    const auto now = core_.snapshot();  // under the lock, as above
    if (s.checked != now->policy->file) {
      s.checked = now->policy->file;
      s.later_ops.clear(), s.problems.clear();
    }
    if (s.checked == nullptr || !has_later_op(s, *now->state)) return;
    const auto announced = announced_ops(loader_);
    for (ConfigProblem& p : policy::check_conditions(
             s.checked->config, RuntimeNames(*now->state, *now->policy->modes, announced)))
      if (std::find(s.problems.begin(), s.problems.end(), p) == s.problems.end()) {
        s.problems.push_back(p);
        news.push_back(std::move(p));
      }
  }
  for (const ConfigProblem& p : news)
    base::log_event(
        LogLevel::kError, "policy",
        to_string(p) + " (found when the op was registered; the rule has no effect there)");
}

std::vector<ConfigProblem> RuleFollower::problems() {
  Conditions& s = conditions_.get();
  const std::lock_guard lock(s.lock);
  return s.problems;
}

}  // namespace yard::runtime
