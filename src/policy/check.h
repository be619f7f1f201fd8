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

// Checks numbers and words that were set in code, where files are written, and the breaker.
void check_settings(const Known& known, Findings& to);

// ---- conflicts.cc: statements of one Config that exclude, cover or contradict each other ----

// An op under all statements of a Config. Borrows the name.
struct OpUnderConfig {
  const std::string& name;
  std::vector<KernelFacts> kernels;
  Clauses clauses;
};
using OpsUnderConfig = std::vector<OpUnderConfig>;

// The clause that excludes some kernels of an op.
struct Exclusion {
  bool any = false;            // the op has such kernels
  const Clause* by = nullptr;  // null if one of them may run
};
// Returns the exclusion of every kernel for which means(kernel) is true, from all calls or from the
// calls for which the clauses in `also` hold.
Exclusion exclusion(const OpUnderConfig& op, const std::function<bool(const KernelFacts&)>& means,
                    const std::vector<const Clause*>& also = {});
// Returns the name of a statement in messages, such as "kernel_denies (vendor.*)". `own` is the
// rule that the message is about.
std::string statement(const OpUnderConfig& op, const Clause& c, uint32_t own = kNoClause);

void check_conflicts(const OpsUnderConfig& ops, Findings& to);

}  // namespace yard::policy
