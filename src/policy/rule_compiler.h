// SPDX-License-Identifier: Apache-2.0
// From the conditions of a Config to tests, one op at a time.
#pragma once

#include <yard/config.h>

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "op/program.h"
#include "policy/fields.h"
#include "policy/rules.h"

namespace yard::policy {

// What is wrong with a condition and what was expected.
struct Wrong {
  std::string found, right;
};

// What became of each condition over all the ops it was compiled for.
struct ConditionReport {
  enum Seen : uint8_t { kNowhere, kNoField, kFine };  // the best of all ops
  std::vector<uint8_t> seen;                          // by RuleCompiler::index_of()
  std::map<size_t, Wrong> wrong;                      // the first thing
  std::map<size_t, Wrong> maybe;  // the same for ops that lack another field of the rule
};

// Collects the tests of one op, each distinct one once.
class ConditionCompiler {
 public:
  explicit ConditionCompiler(OpRules& to) : to_(to) {}

  // Appends what must be true for the condition to hold; false and `wrong` if it is invalid.
  bool add(const OpField& field, Operator op, const Condition& condition,
           std::vector<uint32_t>& literals, Wrong& wrong);
  // After the last add(): sorts the tests and divides the axes into classes.
  void finish();

 private:
  class Draft;
  uint16_t axis_of(const OpField& field);
  uint32_t test_of(uint16_t axis, Draft& draft);
  void make_runs();
  void divide(Axis& axis, uint32_t test) const;

  OpRules& to_;
  std::unordered_map<std::string, uint16_t> axes_;
  std::unordered_map<std::string, uint32_t> tests_;
  std::string key_;
};

class RuleCompiler {
 public:
  // Borrows the config.
  explicit RuleCompiler(const Config& config);

  // The rules and scores whose operation matches the op and whose fields its calls have. Those with a
  // condition that makes no sense are left out and reported.
  OpRules compile(const op::Program& program, ConditionReport* report = nullptr) const;

  // Whether any of them has such an operation.
  bool concerns(std::string_view op) const {
    for (const std::string_view pattern : patterns_)
      if (glob_matches(pattern, op)) return true;
    return false;
  }

  // A report with room for every condition.
  ConditionReport empty_report() const { return {std::vector<uint8_t>(conditions_, 0), {}, {}}; }
  // Of a condition in a report: the `condition`-th of dispatch_rules[rule], or of score[rule].
  size_t index_of(bool score, size_t rule, size_t condition) const {
    return first_condition_[score ? config_.dispatch_rules.size() + rule : rule] + condition;
  }

 private:
  class OneOp;
  uint32_t pattern_of(std::string_view operation);

  const Config& config_;
  std::vector<uint32_t> order_;             // of dispatch_rules, best first
  std::vector<std::string_view> patterns_;  // operations, each once
  std::vector<uint32_t> rule_pattern_, score_pattern_;
  std::vector<size_t> first_condition_;  // of rules, then of scores
  size_t conditions_ = 0;
  std::unordered_map<std::string_view, uint32_t> pattern_ids_;
};

// The kernels an op is mapped to; an exact name beats a glob, the longest glob beats shorter ones. Null if
// none.
template <class Map>
const typename Map::mapped_type* find_for_op(const Map& map, std::string_view op) {
  if (const auto it = map.find(op); it != map.end()) return &it->second;
  const typename Map::mapped_type* best = nullptr;
  size_t length = 0;
  for (const auto& [pattern, value] : map)
    if (pattern.size() > length && glob_matches(pattern, op))
      best = &value, length = pattern.size();
  return best;
}
// The fallback chain of an op: its own, or the default one. May be empty.
const std::vector<KernelRef>& chain_of(const Config& config, std::string_view op);
// The mode of an op by the settings; null where they say nothing.
const std::string* mode_of(const Config& config, std::string_view op);

}  // namespace yard::policy
