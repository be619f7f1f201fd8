// SPDX-License-Identifier: Apache-2.0
// What the environment says: from variables YARD_* to a policy and log levels.
//
// A variable that is empty or blank counts as not set. One whose value means nothing is reported, with what
// would be right, and what it said when it last meant something stays. docs/reference/environment.md has
// the grammar of each.
#pragma once

#include <yard/policy.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::policy {

// Name and value. Passed in, so that nothing below reads the process's own.
using Variables = std::map<std::string, std::string>;

struct EnvProblem {
  std::string variable;  // its name, fit to be shown
  std::string found;     // its value in quotes, cut and escaped
  std::string message;   // what is wrong and what was expected
  bool error;            // false: nothing is lost by it, as with a variable that nobody reads

  bool operator==(const EnvProblem&) const = default;
};
// `YARD_PREFER="vendr": expected default, vendor or reference; did you mean 'vendor'?`
std::string to_string(const EnvProblem& problem);

struct Environment {
  // A backend is named here as its variable spells it, in small letters: see with_backend_names().
  Policy policy;
  // For apply_log_levels(); empty when not set.
  std::string log_levels;
  std::string config;                   // path of a rule file; empty when not set
  std::optional<bool> check_verifiers;  // of dispatched functions
  std::string record;  // path of a file that calls are recorded to; empty when not set
  // Where plugins are looked for, as it stands there; entries are judged by whoever looks.
  std::string plugins, plugin_path;
  // "never", "changed" or "always"; empty when not set.
  std::string plugin_probe;
  // Which variable set a field of the policy; the fields are those of notes() in sources.h.
  std::map<std::string, std::string> sources;

  bool operator==(const Environment&) const = default;
};

// Reads them all. Problems are added in the order of the variables' names.
Environment read_environment(const Variables& variables, const Environment& last_good,
                             std::vector<EnvProblem>& problems);

// The process's variables whose names begin with YARD_. Like getenv, not while another thread changes them.
Variables yard_variables();

// The variables that are read, without those of single backends.
std::vector<std::string> known_variables();
// The variable that switches a backend: YARD_BACKEND_ACME_2 for `acme-2`.
std::string backend_variable(std::string_view backend);
// What the variable says that a backend chose for itself: on, off, or nothing. A value that means nothing is a
// problem and says nothing.
struct OwnSwitch {
  std::optional<bool> on;
  std::optional<EnvProblem> problem;
};
OwnSwitch read_own_switch(const std::string& variable, std::string_view value,
                          const std::string& backend);
// The policy with backends called by their real names, as far as `backends` has them.
Policy with_backend_names(const Policy& policy, const std::vector<std::string>& backends);

}  // namespace yard::policy
