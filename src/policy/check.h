// SPDX-License-Identifier: Apache-2.0
// Checks a Config against the registered ops and kernels.
#pragma once

#include <yard/config.h>

#include "policy/clauses.h"
#include "policy/words.h"

namespace yard::policy {

// What is registered. Borrows texts of facts.
struct Known {
  struct Op {
    // Null if a plugin that is not loaded announces the op. Then its fields are not known yet.
    std::shared_ptr<const op::Program> program = nullptr;
    std::map<std::string, KernelFacts, std::less<>> kernels = {};
  };
  std::map<std::string, Op, std::less<>> ops = {};
  Names backends = {}, vendors = {};
  Names modes = {};      // that the program has added
  Names functions = {};  // dispatched functions, declared or provided, as group/name
  Names labels = {};     // of calls, beside those that need no declaration
};

// Errors are unknown ops, kernels, fields, backends and modes, and values of the wrong type. Warnings are patterns that
// match nothing, statements that contradict each other or have no effect, and unknown kernels and ops of denies, allows
// and locks unless their names are similar to known ones. `compiled` gets the rules of every op whose program is known.
std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled = nullptr);

// Adds the problems of check_config() to those of a reading.
void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled = nullptr);

struct Where {
  ConfigPlace at;
  Path path;
};
struct Findings {
  const Config& config;
  std::vector<ConfigProblem> problems = {};

  void add(Severity severity, const Where& where, std::string found, std::string right);
  void error(const Where& where, std::string found, std::string right) {
    add(Severity::kError, where, std::move(found), std::move(right));
  }
  void warn(const Where& where, std::string found, std::string right) {
    add(Severity::kWarning, where, std::move(found), std::move(right));
  }
};

// Adds to the report which rules of an op have no effect on its calls.
void add_effects(const OpRules& rules, const Known::Op& op, RuleReport& to);

// Warns of statements that exclude each other, leave an op without a kernel or name an unknown label.
void check_conflicts(const Known& known, Findings& to);

}  // namespace yard::policy
