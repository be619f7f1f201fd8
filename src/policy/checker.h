// SPDX-License-Identifier: Apache-2.0
// Shared by the checks of a Config: the problems found, and comparing names with those that are registered.
#pragma once

#include <yard/config.h>

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policy/check.h"

namespace yard::policy {

using NameList = std::vector<std::string>;

// "did you mean 'x'?", or "expected a, b or c", or `otherwise`.
std::string advice(std::string_view word, const NameList& known, const std::string& otherwise);
void sort_names(NameList& names);

// Borrows both.
class Checker {
 public:
  Checker(const Config& config, const Known& known);

  const Config& config() const noexcept { return config_; }
  const Known& known() const noexcept { return known_; }
  const NameList& ops() const noexcept { return ops_; }
  std::vector<ConfigProblem>& problems() noexcept { return problems_; }

  void problem(Severity severity, ConfigPlace at, std::string path, std::string found,
               std::string right);
  void error(ConfigPlace at, std::string path, std::string found, std::string right) {
    problem(Severity::kError, at, std::move(path), std::move(found), std::move(right));
  }

  // The ops that match a name or glob.
  const NameList& matching(const std::string& pattern);
  // False if there is no such op; then a problem has been added.
  bool check_op(const std::string& op, bool optional, ConfigPlace at, const std::string& path);
  // That one of the ops has such a kernel.
  void check_kernel(const std::string& ops, const std::string& kernel, bool optional,
                    ConfigPlace at, const std::string& path);
  void of_op(const std::string& path, const std::string& op, const KernelRef& ref);
  // A kernel of any op.
  void anywhere(const KernelRef& ref, const std::string& path);

 private:
  const Config& config_;
  const Known& known_;
  NameList ops_, all_kernels_;
  std::map<std::string, NameList> kernels_;
  std::unordered_map<std::string, NameList> matching_;
  std::unordered_map<std::string, bool> has_kernel_;
  std::vector<ConfigProblem> problems_;
};

// ---- check_rules.cc ----

enum class RulePart : uint8_t { kAll, kConditions };
struct RuleProblems {
  std::vector<ConfigProblem> rules, scores;
};
// Of dispatch_rules and score.
RuleProblems check_rules(Checker& checker, RulePart part, RulesByOp* compiled);

}  // namespace yard::policy
