// SPDX-License-Identifier: Apache-2.0
// Rules compiled for one op: which of them hold for a call, and what of the call that depends on.
//
// Conditions become tests, each distinct one once; a rule is a conjunction of tests or their opposites. match()
// evaluates every test once and then goes through the rules, best first. Axes list what tests read: calls of the same
// class on every axis match the same rules, so a cache key needs only the classes (fold()), however many rules
// there are.
#pragma once

#include <yard/config.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "op/call_spec.h"
#include "op/predicate.h"
#include "op/program.h"
#include "policy/regex.h"

namespace yard::policy {

// What rules can see of a call that fits its schema. Borrows everything.
struct CallView {
  const yard_value_t* args = nullptr;
  uint32_t flags = 0;  // YARD_CALL_*
  Device device;
  const op::Labels* labels = nullptr;  // null: none
};

// One value that tests read, and where it is divided into classes.
struct Axis {
  enum class Kind : uint8_t {
    kInteger,       // `field`
    kNumber,        // float argument `arg`, by ordered()
    kText,          // string argument `arg`
    kLayout,        // the loosest of `count` arguments from `arg`: 0 contiguous, 1 dense, 2 strided
    kDevice,        // of the call; part of every key anyway
    kFlag,          // `flag`; part of every key anyway
    kLabel,         // text of `label`
    kLabelInteger,  // `label` as a whole number; absent if it is none
  };
  Kind kind = Kind::kInteger;
  bool optional = false;  // a call may lack it; then no test on it holds, nor does its opposite
  uint8_t arg = 0, count = 1;
  uint32_t flag = 0;
  op::Field field;
  std::string label;
  // Ascending.
  std::vector<int64_t> cuts;  // integers with as many of these at or below them pass the same tests
  std::vector<std::string> words;  // kText, kLabel: texts that differ from all others
  std::vector<uint32_t> patterns;  // kText, kLabel: tests that are globs or regular expressions

  // How many bits fold() writes, one of them for each pattern; none for kDevice and kFlag.
  uint32_t bits = 0;

  bool reads_same(const Axis& o) const {
    return kind == o.kind && arg == o.arg && count == o.count && flag == o.flag &&
           field == o.field && label == o.label;
  }
};

// Integers in the order of these numbers, next to each other where the numbers are, so that tests of both are the same. NaN
// is above all.
inline int64_t ordered(double f) noexcept {
  if (std::isnan(f)) return INT64_MAX;
  const auto bits = std::bit_cast<int64_t>(f);
  return bits >= 0 ? bits : INT64_MIN - bits;
}

// A predicate on the value of one axis.
struct Test {
  enum class Kind : uint8_t {
    kInteger,      // `integer` holds
    kOneOf,        // integer in integers[first, first + count)
    kTextOneOf,    // in texts[first, ...)
    kGlob,         // one of the globs texts[first, ...); of a device: as `cuda` or as `cuda:0`
    kRegex,        // one of regexes[first, ...)
    kDeviceOneOf,  // in integers: type << 16 | (index + 1, or 0 for any)
  };
  Kind kind = Kind::kOneOf;
  bool platform = false;  // kGlob, kRegex of a device: its type alone
  uint16_t axis = 0;
  uint32_t first = 0, count = 0;
  op::IntegerTest integer;
};

// Kernels are indices into OpRules::kernels().
struct CompiledRule {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t first = 0, count = 0;  // literals: 2 * test, or 2 * test + 1 for its opposite
  uint32_t kernel = kNone;
  std::vector<uint32_t> deny;
  std::optional<std::vector<uint32_t>> allow;
  int32_t priority = 0;
  uint32_t source = 0;  // index into Config::dispatch_rules
  ConfigPlace at;
};
struct CompiledScore {
  uint32_t first = 0, count = 0;
  uint32_t kernel = 0;
  uint32_t source = 0;  // index into Config::score
  double add = 0, multiply = 1;
};

// Indices into rules() and scores(). Reuse one to save allocations.
struct Matches {
  std::vector<uint32_t> rules;  // best first
  std::vector<uint32_t> scores;
  std::vector<uint8_t> truth;  // scratch of match()
};

// Immutable; threads may use one at once. Borrows nothing.
class OpRules {
 public:
  const std::string& op() const noexcept { return op_; }
  bool empty() const noexcept { return rules_.empty() && scores_.empty(); }
  // By priority, the highest first; of equals the earlier in the file.
  std::span<const CompiledRule> rules() const noexcept { return rules_; }
  std::span<const CompiledScore> scores() const noexcept { return scores_; }
  // Kernel ids or globs of rules and scores, each once.
  std::span<const std::string> kernels() const noexcept { return kernels_; }
  std::span<const Axis> axes() const noexcept { return axes_; }
  std::span<const Test> tests() const noexcept { return tests_; }
  // Whether a rule reads scalar arguments: then a bound handle must look its plan up.
  bool reads_scalars() const noexcept { return reads_scalars_; }
  bool reads_labels() const noexcept { return reads_labels_; }
  // Whether a rule has `deny` or `allow`: then rules count in every mode.
  bool restricts() const noexcept { return restricts_; }

  // Which rules and scores hold for a call that fits the op's schema.
  void match(const CallView& call, Matches& to) const;

  // Words that fold() writes.
  uint32_t key_words() const noexcept { return key_words_; }
  // Calls with equal words, device and flags match the same rules. No allocation, unless an axis has patterns.
  void fold(const CallView& call, uint64_t* words) const;

 private:
  friend class RuleCompiler;
  friend class ConditionCompiler;
  friend class RuleSets;
  struct Value {
    bool there = false;
    int64_t i = 0;
    std::string_view s;
  };
  static Value read(const Axis& axis, const CallView& call);
  bool holds(const Test& test, const Value& v) const;
  bool text_holds(const Test& test, std::string_view text) const;
  bool device_holds(const Test& test, const Value& v) const;
  static uint64_t class_of(const Axis& axis, const Value& v);
  static uint32_t bits_of(const Axis& axis) noexcept;
  // Tests of one axis that a single search answers: all are `>= n`, or all are `== n`, with ascending n.
  struct Run {
    uint16_t axis = 0;
    bool equal = false;
    uint32_t first = 0, count = 0;  // tests, and their n in run_numbers_
  };
  static bool in_run(const Test& test) noexcept {
    return test.kind == Test::Kind::kInteger &&
           test.integer.kind == op::IntegerTest::Kind::kRange &&
           (test.integer.b == INT64_MAX || test.integer.a == test.integer.b);
  }
  void answer(const Run& run, const Value& v, uint8_t* truth) const;
  bool all_true(uint32_t first, uint32_t count, const uint8_t* truth) const noexcept {
    for (uint32_t i = first; i < first + count; ++i)
      if (truth[literals_[i]] == 0) return false;
    return true;
  }

  std::string op_;
  std::vector<CompiledRule> rules_;
  std::vector<CompiledScore> scores_;
  std::vector<uint32_t> literals_;
  std::vector<Axis> axes_;
  std::vector<Test> tests_;  // those of runs_ first
  std::vector<Run> runs_;
  std::vector<int64_t> run_numbers_;
  std::vector<int64_t> integers_;
  std::vector<std::string> texts_, kernels_;
  std::vector<Regex> regexes_;
  uint32_t key_words_ = 0;
  bool reads_scalars_ = false, reads_labels_ = false, restricts_ = false;
};

// An invalid condition: what was found and what was expected.
struct Wrong {
  std::string found, right;
};

// The outcome of each condition over all ops that it was compiled for.
struct ConditionReport {
  enum Seen : uint8_t { kNowhere, kNoField, kFine };  // the best of all ops
  std::vector<uint8_t> seen;                          // by RuleCompiler::index_of()
  std::map<size_t, Wrong> wrong;                      // the first problem
  std::map<size_t, Wrong> maybe;  // likewise, of ops that lack another field of the rule
};

// Compiles the rules of a Config for one op at a time.
class RuleCompiler {
 public:
  // Borrows the config.
  explicit RuleCompiler(const Config& config);

  // The rules and scores whose operation matches the op and whose fields its calls have. Those with an invalid
  // condition are left out and reported.
  OpRules compile(const op::Program& program, ConditionReport* report = nullptr) const;

  // Whether a rule or score has an operation that matches the op.
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

// The value of an op in a map from names and globs; an exact name beats a glob, the longest glob beats shorter ones.
// Null if none matches.
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
// " (rules.yaml:7)"; empty for what was made in code.
std::string place_text(const Config& config, ConfigPlace at);
// The mode of an op by the settings; null if unset.
const std::string* mode_of(const Config& config, std::string_view op);

}  // namespace yard::policy
