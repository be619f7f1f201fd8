// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/recording.h"

namespace yard::runtime {
namespace {

using policy::EnvProblem;
using policy::Reading;

// Finds names in the environment that are not registered.
class UnknownNames {
 public:
  UnknownNames(const registry::State& state, const policy::Variables& variables, Reading& to)
      : variables_(variables), to_(to) {
    for (const auto& [name, op_record] : state.op_records) ops_.push_back(name);
    for (const std::string& name : state.backend_names())
      switches_.push_back(policy::backend_variable(name));
    for (const auto& [name, backend] : state.backends)
      if (!backend->vendor.empty()) vendors_.push_back(backend->vendor);
  }

  void find() {
    const Policy& p = to_.good.policy;
    for (const auto& [op, order] : p.per_op) look("YARD_PER_OP", "op", op, ops_);
    for (const std::string& v : p.deny_vendors) look("YARD_DENY_VENDORS", "vendor", v, vendors_);
    if (p.allow_vendors)
      for (const std::string& v : *p.allow_vendors)
        look("YARD_ALLOW_VENDORS", "vendor", v, vendors_);
    for (const auto& [name, on] : p.backends) {
      const std::string variable = policy::backend_variable(name);
      look(variable, "backend", variable, switches_);
    }
  }

 private:
  void look(const std::string& variable, const char* what, const std::string& name,
            const std::vector<std::string>& known) {
    const auto said = variables_.find(variable);
    if (said == variables_.end() || std::find(known.begin(), known.end(), name) != known.end())
      return;
    to_.problems.push_back({variable, base::quote(said->second),
                            fmt::format("no {} called '{}' is registered{}; it counts once there "
                                        "is one",
                                        what, name, base::did_you_mean(name, known)),
                            false});
  }

  const policy::Variables& variables_;
  Reading& to_;
  std::vector<std::string> ops_, vendors_, switches_;
};

// The user who starts a privileged process must not choose what it reads, writes or opens.
void ignore_paths(Reading& now) {
  policy::Environment& e = now.good;
  const std::pair<const char*, std::string*> paths[] = {{"YARD_CONFIG", &e.config},
                                                        {"YARD_PLUGINS", &e.plugins},
                                                        {"YARD_PLUGIN_PATH", &e.plugin_path},
                                                        {"YARD_PLUGIN_PROBE", &e.plugin_probe},
                                                        {"YARD_RECORD", &e.record}};
  for (const auto& [variable, value] : paths) {
    if (value->empty()) continue;
    now.problems.push_back(
        {variable, base::quote(*value), "ignored in a privileged process", true});
    value->clear();
  }
}

// A file that cannot be written is reported at once, not when there is something to write.
void check_record(const Reading& before, Reading& now) {
  std::string& path = now.good.record;
  if (path.empty() || path == before.good.record) return;
  const auto recording = Recording::open(path);
  if (recording.ok()) return;
  now.problems.push_back(
      {"YARD_RECORD", base::quote(path), std::string(recording.status().message()), true});
  path = before.good.record;
}

}  // namespace

std::shared_ptr<const Reading> read_environment(const Reading& before, const registry::State& state,
                                                bool privileged) {
  auto reading = std::make_shared<Reading>();
  const policy::Variables variables = policy::yard_variables();
  reading->good = policy::read_environment(variables, before.good, reading->problems);
  UnknownNames(state, variables, *reading).find();
  // Levels first: they decide what of the rest is seen.
  if (reading->good.log_levels != before.good.log_levels)
    if (const Status s = apply_log_levels(reading->good.log_levels); !s.ok())
      reading->problems.push_back({"YARD_LOG_LEVEL", base::quote(reading->good.log_levels),
                                   std::string(s.message()), true});
  if (privileged) ignore_paths(*reading);
  check_record(before, *reading);
  for (const EnvProblem& p : reading->problems)
    base::log(LogLevel::kWarn, "policy", policy::to_string(p));
  return reading;
}

Status first_error(const Reading& reading) {
  Status s;
  for (const EnvProblem& p : reading.problems) {
    if (!p.error) continue;
    if (s.ok())
      s = Status(Code::kInvalidArgument, policy::to_string(p));
    else
      s.note(policy::to_string(p));
  }
  return s;
}

}  // namespace yard::runtime
