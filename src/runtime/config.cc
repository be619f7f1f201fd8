// SPDX-License-Identifier: Apache-2.0
#include "runtime/config.h"

#include <set>

#include "policy/check.h"
#include "registry/declarations.h"

namespace yard::runtime {
namespace {

class KnownHere final : public policy::Known {
 public:
  KnownHere(const registry::State& state, const policy::Modes& modes,
            const std::vector<std::string>& announced)
      : state_(state), modes_(modes), announced_(announced) {}

  std::vector<std::string> ops() const override {
    std::set<std::string> all(announced_.begin(), announced_.end());
    for (const auto& [name, op_record] : state_.op_records) all.insert(name);
    return {all.begin(), all.end()};
  }
  const op::Program* program(std::string_view op) const override {
    const registry::OpRecord* op_record = state_.find(op);
    return op_record != nullptr ? op_record->op->program.get() : nullptr;
  }
  std::vector<std::string> kernels(std::string_view op) const override {
    std::vector<std::string> ids;
    if (const registry::OpRecord* op_record = state_.find(op))
      for (const auto& [id, kernel] : op_record->kernels) ids.push_back(id);
    return ids;
  }
  std::vector<std::string> backends() const override {
    std::vector<std::string> names;
    for (const auto& [name, backend] : state_.backends) names.push_back(name);
    return names;
  }
  std::vector<std::string> vendors() const override {
    std::set<std::string> names;
    for (const auto& [name, backend] : state_.backends)
      if (!backend->vendor.empty()) names.insert(backend->vendor);
    return {names.begin(), names.end()};
  }

  std::vector<std::string> modes() const override {
    std::vector<std::string> names;
    for (const auto& [name, mode] : modes_) names.push_back(name);
    return names;
  }

  std::vector<std::string> functions() const override {
    std::set<std::string> names;
    for (const detail::FunctionSite* s : registry::function_sites())
      names.insert(s->group + "/" + s->name);
    for (const auto& h : state_.functions) names.insert(h->group + "/" + h->name);
    return {names.begin(), names.end()};
  }

 private:
  const registry::State& state_;
  const policy::Modes& modes_;
  const std::vector<std::string>& announced_;
};

}  // namespace

std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::Modes& modes,
                                                    const std::vector<std::string>& announced) {
  policy::RulesByOp compiled;
  policy::check_reading(reading, KnownHere(state, modes, announced), &compiled);
  if (!reading.ok()) return nullptr;
  auto rules = std::make_shared<policy::FileRules>(reading.config);
  for (const auto& [name, op_record] : state.op_records) {
    const auto it = compiled.find(name);
    rules->add(op_record->op->program, it != compiled.end() ? it->second : nullptr);
  }
  return rules;
}

std::vector<ConfigProblem> wrong_conditions(const Config& config, const registry::State& state,
                                            const policy::Modes& modes,
                                            const std::vector<std::string>& announced) {
  return policy::check_conditions(config, KnownHere(state, modes, announced));
}

Status first_error(const std::vector<ConfigProblem>& problems) {
  Status s;
  for (const ConfigProblem& p : problems) {
    if (p.severity != Severity::kError) continue;
    if (s.ok())
      s = Status(Code::kInvalidArgument, to_string(p));
    else
      s.note(to_string(p));
  }
  return s;
}

}  // namespace yard::runtime
