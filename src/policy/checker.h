// SPDX-License-Identifier: Apache-2.0
// What all checks of a Config share: the problems found, and names held against what is registered.
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

// "did you mean 'x'?", or what there is, or `otherwise`.
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

  // The ops that a name or glob means.
  const NameList& matching(const std::string& pattern);
  // False if there is no such op; then that has been said.
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
// The rules' problems are added to the checker's; those of `score`, which stands elsewhere, are given back.
std::vector<ConfigProblem> check_rules(Checker& checker, RulePart part, RulesByOp* compiled);

}  // namespace yard::policy
