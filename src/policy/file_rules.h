// SPDX-License-Identifier: Apache-2.0
// A rule file in force: its policy, and its rules compiled for each op.
#pragma once

#include <yard/config.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "policy/rule_compiler.h"
#include "policy/rules.h"

namespace yard::policy {

// Immutable once published.
class FileRules {
 public:
  explicit FileRules(Config c) : config(std::move(c)), said(policy_of(config)), compiler_(config) {}
  FileRules(const FileRules&) = delete;
  FileRules& operator=(const FileRules&) = delete;

  // The rules of an op, compiled now unless they were added for this program; null: none.
  std::shared_ptr<const OpRules> rules_for(
      const std::shared_ptr<const op::Program>& program) const {
    if (knows(*program)) return ops_.find(program->name())->second.rules;
    auto rules = std::make_shared<const OpRules>(compiler_.compile(*program));
    return rules->empty() ? nullptr : rules;
  }
  // Before publication.
  void add(std::shared_ptr<const op::Program> program, std::shared_ptr<const OpRules> rules) {
    const std::string name = program->name();
    ops_[name] = {std::move(program), std::move(rules)};
  }

  // Whether the rules were added for this program. Conditions on other programs have not been checked.
  bool knows(const op::Program& program) const noexcept {
    const auto it = ops_.find(program.name());
    return it != ops_.end() && it->second.program.get() == &program;
  }
  // Whether a rule or a score entry applies to ops of that name.
  bool concerns(std::string_view op) const { return compiler_.concerns(op); }

  const Config config;
  const Policy said;  // policy, locks, denies and allows

 private:
  struct OfOp {
    std::shared_ptr<const op::Program> program;
    std::shared_ptr<const OpRules> rules;
  };
  RuleCompiler compiler_;
  std::map<std::string, OfOp, std::less<>> ops_;
};

}  // namespace yard::policy
