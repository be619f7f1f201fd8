// SPDX-License-Identifier: Apache-2.0
// Compares the names in rules and in the environment with what is registered.
#include <fmt/format.h>

#include <set>

#include "base/events.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/text.h"
#include "functions/table.h"
#include "policy/check.h"
#include "rules/rules.h"

namespace yard::rules {
namespace {

// Includes the names that plugins announce before they are loaded.
struct RuntimeNames : policy::Known {
  RuntimeNames(const registry::State& state, const policy::ProcessPolicy* process,
               plugin::Loader& loader) {
    backends = state.backend_names();
    for (const PluginInfo& p : loader.list()) {
      if (p.state != PluginState::kFound) continue;
      for (const std::string& op : p.ops) ops[op];
      backends.push_back(p.name);  // a plugin's backend usually has its name
    }
    for (const auto& [name, op_record] : state.op_records) {
      Op& op = ops[name] = {op_record->op->program};
      for (const auto& [id, kernel] : op_record->kernels)
        op.kernels.emplace(id, select::facts_of(*kernel));
    }
    std::set<std::string> names;
    for (const auto& [name, backend] : state.backends)
      if (!backend->vendor.empty()) names.insert(backend->vendor);
    vendors.assign(names.begin(), names.end());
    if (process == nullptr) return;
    modes = base::keys(*process->modes);
    labels = base::keys(process->labels);
    mapped = process->mapped;
    names.clear();
    for (const detail::FunctionSite* s : yard::functions::declared_sites())
      names.insert(s->group + "/" + s->name);
    for (const auto& h : state.functions) names.insert(h->group + "/" + h->name);
    functions.assign(names.begin(), names.end());
  }
};

}  // namespace

std::shared_ptr<const policy::FileRules> Rules::compile(ConfigReading& reading) {
  const auto now = core_.snapshot();
  RuntimeNames known(*now->state, &*now->policy, loader_);
  const std::string& stated = now->policy->reading->good.output_directory;
  known.output_directory = output_directory_.empty() ? stated : output_directory_;
  policy::RulesByOp compiled;
  policy::check_reading(reading, known, &compiled);
  if (!reading.ok()) return nullptr;
  return std::make_shared<policy::FileRules>(std::move(reading.config), std::move(compiled));
}

void Rules::check_later_ops() {
  const auto now = core_.snapshot();
  const auto rules = now->policy->file;
  std::unique_lock lock(lock_);
  if (checked_ != rules) {
    checked_ = rules;
    later_ops_.clear(), later_problems_.clear();
  }
  if (rules == nullptr) return;
  bool concerned = false;
  for (const auto& [name, op_record] : now->state->op_records) {
    const std::shared_ptr<const op::Program>& program = op_record->op->program;
    if (!rules->knows(program) && later_ops_.insert(program).second)
      concerned |= rules->concerns(name);
  }
  lock.unlock();
  if (!concerned) return;
  for (const ConfigProblem& p :
       policy::check_config(rules->config, RuntimeNames(*now->state, &*now->policy, loader_))) {
    if (p.severity != Severity::kError || p.path.find(".conditions.") == p.path.npos) continue;
    lock.lock();
    const bool is_new = checked_ == rules && !base::contains(later_problems_, p);
    if (is_new) later_problems_.push_back(p);
    lock.unlock();
    if (!is_new) continue;
    base::log_event(
        LogLevel::kError, "policy",
        to_string(p) + " (found when the op was registered; the rule has no effect there)");
  }
}

// ---- The environment ----

std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const CanRecord& can_record,
                                                        bool privileged) {
  auto reading = std::make_shared<policy::Reading>();
  const policy::Variables variables = policy::yard_variables();
  reading->good = policy::read_environment(variables, before.good, reading->problems);
  policy::Environment& good = reading->good;
  const auto use = [&](const char* variable, std::string policy::Environment::*member,
                       const CanRecord& apply) {
    const std::string& last = before.good.*member;
    std::string& value = good.*member;
    const Status s = value != last ? apply(value) : Status();
    if (s.ok()) return;
    reading->problems.push_back({variable, base::quote(value), std::string(s.message()), true});
    value = last;
  };
  // The user who starts a privileged process must not choose what it reads, writes or opens.
  for (const auto& [variable, value] :
       {std::pair("YARD_CONFIG", &good.config), std::pair("YARD_EVENTS", &good.events),
        std::pair("YARD_PLUGINS", &good.plugins), std::pair("YARD_PLUGIN_PATH", &good.plugin_path),
        std::pair("YARD_PYTHON_PLUGINS", &good.python_plugins),
        std::pair("YARD_RECORD", &good.record),
        std::pair("YARD_OUTPUT_DIRECTORY", &good.output_directory)})
    if (privileged && !value->empty())
      reading->problems.push_back({variable, base::quote(std::exchange(*value, "")),
                                   "ignored in a privileged process", true});
  // Apply the levels first, because they decide whether the other problems are logged.
  use("YARD_LOG_LEVEL", &policy::Environment::log_levels, apply_log_levels);
  use("YARD_RECORD", &policy::Environment::record,
      [&](const std::string& path) { return path.empty() ? Status() : can_record(path); });
  use("YARD_EVENTS", &policy::Environment::events, base::write_events_to);
  for (const policy::EnvProblem& p : reading->problems)
    base::log(LogLevel::kWarn, "policy", policy::to_string(p));
  return reading;
}

std::shared_ptr<const policy::Reading> with_unknown_names(const policy::Reading& reading,
                                                          const registry::State& state,
                                                          plugin::Loader& loader) {
  auto to = std::make_shared<policy::Reading>(reading);
  const RuntimeNames known(state, nullptr, loader);
  const policy::Variables variables = policy::yard_variables();
  const auto look = [&](const std::string& variable, const char* what, const std::string& name,
                        const std::vector<std::string>& names) {
    const auto said = variables.find(variable);
    if (said == variables.end() || base::contains(names, name)) return;
    to->problems.push_back({variable, base::quote(said->second),
                            fmt::format("no {} called '{}' is registered{}; it counts once there "
                                        "is one",
                                        what, name, base::did_you_mean(name, names)),
                            false});
    base::log(LogLevel::kWarn, "policy", policy::to_string(to->problems.back()));
  };
  const Policy& p = to->good.policy;
  std::vector<std::string> switches = known.backends;
  for (std::string& name : switches) name = policy::backend_variable(name);
  for (const auto& [op, order] : p.per_op) look("YARD_PER_OP", "op", op, base::keys(known.ops));
  for (const std::string& v : p.deny_vendors) look("YARD_DENY_VENDORS", "vendor", v, known.vendors);
  for (const std::string& v : p.allow_vendors.value_or(std::vector<std::string>()))
    look("YARD_ALLOW_VENDORS", "vendor", v, known.vendors);
  for (const auto& [name, on] : p.backends)
    look(policy::backend_variable(name), "backend", policy::backend_variable(name), switches);
  return to->problems.size() == reading.problems.size() ? nullptr : to;
}

static void add_error(std::string text, Status& to) {
  to = to.ok() ? Status(Code::kInvalidArgument, std::move(text)) : std::move(to).note(text);
}

Status first_error(const policy::ProcessPolicy& process) {
  Status s;
  for (const policy::EnvProblem& p : process.reading->problems)
    if (p.error) add_error(to_string(p), s);
  for (const auto& [backend, own] : process.own_switches)
    if (own.problem) add_error(to_string(*own.problem), s);
  return s;
}

Status first_error(const Problems& problems) {
  Status s;
  for (const ConfigProblem& p : problems)
    if (p.severity == Severity::kError) add_error(to_string(p), s);
  return s;
}

}  // namespace yard::rules
