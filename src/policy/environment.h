// SPDX-License-Identifier: Apache-2.0
// From environment variables YARD_* to a policy, log levels and paths. The rows of config_rows.h say which variable sets
// what; docs/reference/environment.md has the grammar of each.
//
// A variable that is empty or blank counts as unset. An invalid value is reported with what was expected, and the
// variable keeps its last valid value.
#pragma once

#include <yard/policy.h>

namespace yard::policy {

using Variables = std::map<std::string, std::string>;

struct EnvProblem {
  std::string variable;  // its name, fit to be shown
  std::string found;     // its value in quotes, cut and escaped
  std::string message;   // what is wrong and what was expected
  bool error;            // false: a warning, as for an unknown variable

  bool operator==(const EnvProblem&) const = default;
};
// `YARD_PREFER="vendr": expected default, vendor or reference; did you mean 'vendor'?`
std::string to_string(const EnvProblem& problem);

struct Environment {
  // A backend is named here as its variable spells it, in small letters: see with_backend_names().
  Policy policy;
  // For apply_log_levels(); empty when not set.
  std::string log_levels;
  std::string config;  // path of a rule file; empty when not set
  std::string record;  // path of a file that calls are recorded to; empty when not set
  std::optional<int64_t> state_bytes;  // that kept states of kernels may hold together
  std::string verbose;                 // "0", "1" or "2"; empty when not set
  std::optional<bool> inspect;         // whether the process answers on a socket
  // Where plugins are searched; the entries are checked by the search.
  std::string plugins, plugin_path;
  // Which variable set a field of the policy; the fields are those of notes() in process.h.
  std::map<std::string, std::string> sources;

  bool operator==(const Environment&) const = default;
};

Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems);

// The process's variables whose names begin with YARD_. Like getenv, not while another thread changes them.
Variables yard_variables();

// The variables that are read, without those of single backends.
std::vector<std::string> known_variables();
// The variable that switches a backend: YARD_BACKEND_ACME_2 for `acme-2`.
std::string backend_variable(std::string_view backend);
// The variable that a backend's descriptor names: on, off or unset. An invalid value is a problem, and leaves the last
// valid one.
struct OwnSwitch {
  std::optional<bool> on;
  std::optional<EnvProblem> problem;
  bool current = true;  // false: to be read again
};
OwnSwitch read_own_switch(const std::string& variable, std::string_view value,
                          const std::string& backend, std::optional<bool> last = {});
// The policy with the real names of those backends that `backends` lists.
Policy with_backend_names(const Policy& policy, const std::vector<std::string>& backends);

}  // namespace yard::policy
