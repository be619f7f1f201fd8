// SPDX-License-Identifier: Apache-2.0
// Reads environment variables YARD_* by the rows of config_rows.h. docs/reference/environment.md
// has their grammar. A blank variable counts as unset. An invalid value is a problem, and the
// variable keeps its last valid value.
#pragma once

#include <yard/policy.h>

namespace yard::policy {

using Variables = std::map<std::string, std::string>;

struct EnvProblem {
  std::string variable;  // printable
  std::string found;     // its value in quotes, cut and escaped
  std::string message;   // the problem and the expected value
  bool error;            // or a warning, as for an unknown variable

  bool operator==(const EnvProblem&) const = default;
};
// Formats a problem like `YARD_PREFER="vendr": expected default, vendor or reference`.
std::string to_string(const EnvProblem& problem);

struct Environment {
  Policy policy;  // spells backends as their variables do; see with_backend_names()
  std::string log_levels, config, events, record, output_directory, verbose, plugins, plugin_path,
      python_plugins;
  std::optional<int64_t> state_bytes;
  std::optional<bool> inspect;
  std::map<std::string, std::string>
      sources;  // by the field of a PolicyNote: the variable that set it

  bool operator==(const Environment&) const = default;
};

Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems);

// Returns the variables YARD_*. No other thread may change the environment meanwhile.
Variables yard_variables();

// Returns the known variables, except the switches of single backends.
std::vector<std::string> known_variables();
// Returns the variable that switches a backend, such as YARD_BACKEND_ACME_2 for `acme-2`.
std::string backend_variable(std::string_view backend);
// The result of reading the variable that a backend's descriptor names.
struct OwnSwitch {
  std::optional<bool> on;
  std::optional<EnvProblem> problem;
  bool current = true;  // if false, it must be read again
};
OwnSwitch read_own_switch(const std::string& variable, std::string_view value,
                          const std::string& backend, std::optional<bool> last = {});
// Returns the policy with the registered names of `backends`.
Policy with_backend_names(const Policy& policy, const std::vector<std::string>& backends);

}  // namespace yard::policy
