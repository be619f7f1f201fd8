// SPDX-License-Identifier: Apache-2.0
#include "policy/file_rules.h"

namespace yard::policy {

void FileRules::add(std::shared_ptr<const op::Program> program,
                    std::shared_ptr<const OpRules> rules) {
  const std::string name = program->name();
  ops_[name] = {std::move(program), std::move(rules)};
}

std::shared_ptr<const OpRules> FileRules::rules_for(
    const std::shared_ptr<const op::Program>& program) const {
  if (const auto it = ops_.find(program->name()); it != ops_.end() && it->second.program == program)
    return it->second.rules;
  auto rules = std::make_shared<const OpRules>(compiler_.compile(*program));
  return rules->empty() ? nullptr : rules;
}

}  // namespace yard::policy
