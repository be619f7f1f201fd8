// SPDX-License-Identifier: Apache-2.0
// Which rules concern an op, in which order.
#include "policy/rule_compiler.h"

#include <algorithm>
#include <numeric>

#include "policy/config_keys.h"

namespace yard::policy {

RuleCompiler::RuleCompiler(const Config& config) : config_(config) {
  const std::vector<DispatchRule>& rules = config.dispatch_rules;
  order_.resize(rules.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const int usual = config.defaults.default_priority.value_or(kDefaultPriority);
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return rules[a].priority.value_or(usual) > rules[b].priority.value_or(usual);
  });
  const auto note = [&](const auto& rule, std::vector<uint32_t>& patterns) {
    patterns.push_back(pattern_of(rule.operation));
    first_condition_.push_back(conditions_);
    conditions_ += rule.conditions.size();
  };
  for (const DispatchRule& r : rules) note(r, rule_pattern_);
  for (const ScoreRule& r : config.score) note(r, score_pattern_);
}

uint32_t RuleCompiler::pattern_of(std::string_view operation) {
  const auto [it, is_new] =
      pattern_ids_.emplace(operation, static_cast<uint32_t>(patterns_.size()));
  if (is_new) patterns_.push_back(operation);
  return it->second;
}

// The compilation for one op.
class RuleCompiler::OneOp {
 public:
  OneOp(const RuleCompiler& from, const op::Program& program, ConditionReport* report)
      : from_(from), report_(report), fields_(program), pool_(to_) {
    to_.op_ = program.name();
  }

  OpRules compile() {
    std::vector<bool> mine(from_.patterns_.size());
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = glob_matches(from_.patterns_[i], to_.op_);
    const Config& config = from_.config_;
    const int usual = config.defaults.default_priority.value_or(kDefaultPriority);
    for (const uint32_t i : from_.order_) {
      if (!mine[from_.rule_pattern_[i]]) continue;
      const DispatchRule& r = config.dispatch_rules[i];
      CompiledRule c;
      if (!conjunction(r.conditions, from_.index_of(false, i, 0), c.first, c.count)) continue;
      c.kernel = kernel_of(r.kernel);
      c.priority = r.priority.value_or(usual);
      c.source = i;
      c.at = r.at;
      to_.rules_.push_back(c);
    }
    for (uint32_t i = 0; i < config.score.size(); ++i) {
      if (!mine[from_.score_pattern_[i]]) continue;
      const ScoreRule& r = config.score[i];
      CompiledScore c;
      if (!conjunction(r.conditions, from_.index_of(true, i, 0), c.first, c.count)) continue;
      c.kernel = kernel_of(r.kernel);
      c.source = i;
      c.add = r.add, c.multiply = r.multiply;
      to_.scores_.push_back(c);
    }
    pool_.finish();
    return std::move(to_);
  }

 private:
  // False if the op lacks one of the fields, or a condition makes no sense.
  bool conjunction(const std::vector<Condition>& conditions, size_t index, uint32_t& first,
                   uint32_t& count) {
    const size_t begin = to_.literals_.size();
    bool good = true;
    for (size_t i = 0; i < conditions.size(); ++i) {
      const bool has = key_of(conditions[i]).field != nullptr;
      note(index + i, has ? ConditionReport::kFine : ConditionReport::kNoField);
      good = good && has;
    }
    // Such a rule is not about this op, and must not make its keys longer.
    if (!good) return try_out(conditions, index), false;
    for (size_t i = 0; i < conditions.size(); ++i) {
      Wrong wrong;
      const SplitKey& key = key_of(conditions[i]);
      if (pool_.add(*key.field, key.op, conditions[i], to_.literals_, wrong)) continue;
      good = false;
      if (report_ != nullptr) report_->wrong.emplace(index + i, std::move(wrong));
    }
    if (!good) to_.literals_.resize(begin);
    first = static_cast<uint32_t>(begin);
    count = static_cast<uint32_t>(to_.literals_.size() - begin);
    return good;
  }

  // What would be wrong with the others, should nobody have the missing field.
  void try_out(const std::vector<Condition>& conditions, size_t index) {
    if (report_ == nullptr) return;
    OpRules scratch;
    ConditionCompiler pool(scratch);
    std::vector<uint32_t> literals;
    for (size_t i = 0; i < conditions.size(); ++i) {
      Wrong wrong;
      const SplitKey& key = key_of(conditions[i]);
      if (key.field != nullptr && !pool.add(*key.field, key.op, conditions[i], literals, wrong))
        report_->maybe.emplace(index + i, std::move(wrong));
    }
  }

  const SplitKey& key_of(const Condition& c) {
    auto it = keys_.find(c.key);
    if (it == keys_.end()) it = keys_.emplace(c.key, split_key(c.key, fields_)).first;
    return it->second;
  }

  void note(size_t index, ConditionReport::Seen seen) {
    if (report_ != nullptr) report_->seen[index] = std::max<uint8_t>(report_->seen[index], seen);
  }

  uint32_t kernel_of(const std::string& kernel) {
    const auto [it, is_new] =
        kernel_ids_.emplace(kernel, static_cast<uint32_t>(to_.kernels_.size()));
    if (is_new) to_.kernels_.push_back(kernel);
    return it->second;
  }

  const RuleCompiler& from_;
  ConditionReport* report_;
  OpRules to_;
  OpFields fields_;
  ConditionCompiler pool_;
  std::unordered_map<std::string_view, SplitKey> keys_;
  std::unordered_map<std::string_view, uint32_t> kernel_ids_;
};

OpRules RuleCompiler::compile(const op::Program& program, ConditionReport* report) const {
  return OneOp(*this, program, report).compile();
}

const std::vector<KernelRef>& chain_of(const Config& config, std::string_view op) {
  const auto* own = find_for_op(config.fallback_chains, op);
  return own != nullptr ? *own : config.defaults.fallback_policy;
}

const std::string* mode_of(const Config& config, std::string_view op) {
  if (const std::string* own = find_for_op(config.settings.modes, op)) return own;
  return config.settings.mode ? &*config.settings.mode : nullptr;
}

}  // namespace yard::policy
