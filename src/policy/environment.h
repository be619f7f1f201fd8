// SPDX-License-Identifier: Apache-2.0
// Reads environment variables YARD_*. The rows of config_rows.h say which variable sets what, and
// docs/reference/environment.md has the grammar of each.
//
// An empty or blank variable counts as unset. An invalid value is a problem, and the variable keeps its last valid value.
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
  // Names backends as their variables spell them, in small letters: see with_backend_names().
  Policy policy;
  // Empty when not set.
  std::string log_levels, config, events, record, output_directory, verbose, plugins, plugin_path;
  std::optional<int64_t> state_bytes;
  std::optional<bool> inspect;
  std::map<std::string, std::string> sources;  // which variable set a field; see notes()

  bool operator==(const Environment&) const = default;
};

Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems);

// The process's variables whose names begin with YARD_. As with getenv, no other thread may change them meanwhile.
Variables yard_variables();

// Does not list the variables of single backends.
std::vector<std::string> known_variables();
// The variable that switches a backend: YARD_BACKEND_ACME_2 for `acme-2`.
std::string backend_variable(std::string_view backend);
// The value of the variable that a backend's descriptor names.
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
