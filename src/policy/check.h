// SPDX-License-Identifier: Apache-2.0
// Checks a Config against the registered ops and kernels.
#pragma once

#include <yard/config.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "op/program.h"
#include "policy/rules.h"

namespace yard::policy {

// The names that are registered. Used by one thread.
class Known {
 public:
  virtual ~Known() = default;
  virtual std::vector<std::string> ops() const = 0;
  // Null: the op is announced by a plugin that is not loaded; its fields are not known yet.
  virtual const op::Program* program(std::string_view op) const = 0;
  // Ids of the op's kernels.
  virtual std::vector<std::string> kernels(std::string_view op) const = 0;
  virtual std::vector<std::string> backends() const = 0;
  virtual std::vector<std::string> vendors() const = 0;
  // Beside auto, static, dynamic, config and hot_reload.
  virtual std::vector<std::string> modes() const { return {}; }
  // Dispatched functions, declared or provided, as group/name.
  virtual std::vector<std::string> functions() const { return {}; }
};

using RulesByOp = std::map<std::string, std::shared_ptr<const OpRules>, std::less<>>;

// Errors: unknown ops, kernels, fields, backends and modes, values of the wrong type. Warnings: patterns that match
// nothing. In the order of the file's sections. `compiled` gets the rules of every op whose program is known and that
// has any, so that nothing is compiled twice; meaningful only without errors.
std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled = nullptr);

// Checks only the conditions of rules and score entries, for ops that have become known since.
std::vector<ConfigProblem> check_conditions(const Config& config, const Known& known);

// Adds the problems of check_config() to those of a reading and sorts all by file and line. Beyond kMostProblems
// warnings are cut first, and the last problem is that there are more.
void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled = nullptr);

}  // namespace yard::policy
