// SPDX-License-Identifier: Apache-2.0
// Checks a Config against the registered ops and kernels.
#pragma once

#include <yard/config.h>

#include "policy/clauses.h"
#include "policy/words.h"

namespace yard::policy {

// Comparing the calls of two rules takes time in the cube of their conditions.
inline constexpr size_t kMostConditions = 100;

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
  // Rule files may have files written below this folder only; empty: below that of the rule file.
  std::string output_directory = {};
  StaticMap mapped = {};  // of the program
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

  // For values, and for entries of lists and maps, that have no place of their own.
  Where where(const Path& path) const;
  Where where_entry(const Path& map, const std::string& name) const;

  void add(Severity severity, const Where& where, std::string found, std::string right);
  void error(const Where& where, std::string found, std::string right) {
    add(Severity::kError, where, std::move(found), std::move(right));
  }
  void warn(const Where& where, std::string found, std::string right) {
    add(Severity::kWarning, where, std::move(found), std::move(right));
  }
};

}  // namespace yard::policy
