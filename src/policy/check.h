// SPDX-License-Identifier: Apache-2.0
// Checks a Config against the registered ops and kernels.
#pragma once

#include <yard/config.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "op/program.h"
#include "policy/clauses.h"
#include "policy/words.h"

namespace yard::policy {

// The names that are registered. Used by one thread.
class Known {
 public:
  virtual ~Known() = default;
  virtual std::vector<std::string> ops() const = 0;
  // Null if the op is announced by a plugin that is not loaded, so that its fields are not known yet.
  virtual const op::Program* program(std::string_view op) const = 0;
  // Ids of the op's kernels.
  virtual std::vector<std::string> kernels(std::string_view op) const = 0;
  virtual std::vector<std::string> backends() const = 0;
  virtual std::vector<std::string> vendors() const = 0;
  // Modes that the program has added.
  virtual std::vector<std::string> modes() const { return {}; }
  // Dispatched functions, declared or provided, as group/name.
  virtual std::vector<std::string> functions() const { return {}; }
  // Labels that calls have, beside those that need no declaration.
  virtual std::vector<std::string> labels() const { return {}; }
  // What is known of a kernel of the op, which may not be registered.
  virtual KernelFacts facts(std::string_view op, std::string_view kernel) const {
    (void)op;
    return {kernel, "", "", Kind::kReference, true};
  }
};

using RulesByOp = std::map<std::string, std::shared_ptr<const OpRules>, std::less<>>;

// Errors: unknown ops, kernels, fields, backends and modes, values of the wrong type. Warnings: patterns that match
// nothing; unknown kernels and ops of denies, allows and locks, unless they are near misses of known ones; statements
// that contradict each other or have no effect. `compiled` gets the rules of every op whose program is known and that
// has any, so that nothing is compiled twice; meaningful only without errors.
std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled = nullptr);

// Checks only the conditions of dispatch and score rules, for ops that have become known since.
std::vector<ConfigProblem> check_conditions(const Config& config, const Known& known);

// Adds the problems of check_config() to those of a reading and sorts all by file and line. Beyond kMostProblems
// warnings are cut first, and the last problem is that there are more.
void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled = nullptr);

// ---- conflicts.cc ----

using KernelsByOp = std::map<std::string, Names>;
using AddWarning =
    std::function<void(ConfigPlace, std::string path, std::string found, std::string right)>;

// What becomes of a rule, over all ops that it was compiled for.
struct Effect {
  uint32_t ops = 0;
  uint32_t impossible = 0;         // where its conditions cannot all hold
  uint32_t shadowed = 0;           // where another rule comes first for all of its calls
  uint32_t by = 0;                 // that rule
  std::vector<size_t> conditions;  // that cannot all hold
};
// Of dispatch_rules and score.
struct Effects {
  std::vector<Effect> rules, scores;
  size_t comparisons_left = 4'000'000;  // of two rules; beyond it, shadowed rules are not reported
};
// Adds the effects of rules on calls of one op, which has these kernels.
void add_effects(const OpRules& rules, const Names& kernels, Effects& to);

// Warns of statements that exclude each other, leave an op without a kernel or name an unknown label.
void check_conflicts(const Config& config, const Known& known, const KernelsByOp& kernels,
                     const AddWarning& warn);

// "dispatch_rules[0].conditions.rows_gte"
inline std::string condition_path(const std::string& rule, std::string_view key) {
  return child_path(rule + ".conditions", key);
}

}  // namespace yard::policy
