// SPDX-License-Identifier: Apache-2.0
// Checks a Config against the registered ops and kernels.
#pragma once

#include "policy/clauses.h"
#include "policy/words.h"

namespace yard::policy {

// Comparing two rules takes time in the cube of their conditions.
inline constexpr size_t kMostConditions = 100;

// The registered ops and kernels. Borrows the texts of the facts.
struct Known {
  struct Op {
    // Null if a plugin announces the op and is not loaded. Then its fields are not known yet.
    std::shared_ptr<const op::Program> program = nullptr;
    std::map<std::string, KernelFacts, std::less<>> kernels = {};
  };
  std::map<std::string, Op, std::less<>> ops = {};
  Names backends = {}, vendors = {};
  Names modes = {};      // modes of the program
  Names functions = {};  // as group/name
  Names labels = {};     // in addition to kPlainLabels
  // Rule files may have files written only below this folder, or below their own if it is empty.
  std::string output_directory = {};
  StaticMap mapped = {};  // static map of the program
};

// docs/reference/rules.md lists the problems. `compiled` gets the rules of every known program.
std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled = nullptr);

// Adds the problems of check_config() to the reading.
void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled = nullptr);

struct Where {
  ConfigPlace at;
  Path path;
};
struct Findings {
  const Config& config;
  std::vector<ConfigProblem> problems = {};

  // These return the place of a value or of a map's entry in Config::sources.
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
