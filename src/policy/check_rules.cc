// SPDX-License-Identifier: Apache-2.0
// Dispatch and score rules: their ops, their kernels, and their conditions against the fields of calls.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "base/lists.h"
#include "base/text.h"
#include "policy/check.h"
#include "policy/fields.h"
#include "policy/words.h"

namespace yard::policy {

// Compares the calls that rules of one op match. The tests of an axis divide its values into classes that pass the same
// ones; it is enough to try one value of each class. Borrows the rules.
class RuleSets {
 public:
  using Literals = std::span<const uint32_t>;
  explicit RuleSets(const OpRules& rules) : rules_(rules), uses_(rules.tests_.size()) {
    for (const uint32_t l : rules.literals_) ++uses_[l / 2];
  }

  template <class Rule>
  Literals literals(const Rule& r) const {
    return Literals(rules_.literals_).subspan(r.first, r.count);
  }
  uint16_t axis(uint32_t literal) const { return rules_.tests_[literal / 2].axis; }

  // An axis on which no value passes; -1: there is none.
  int impossible_axis(Literals of) {
    for (const uint32_t l : of) {
      values_.clear();
      for (const uint32_t other : of)
        if (axis(other) == axis(l)) add_values(other);
      if (std::none_of(values_.begin(), values_.end(),
                       [&](const OpRules::Value& v) { return passes(of, axis(l), v); }))
        return axis(l);
    }
    return -1;
  }

  // Whether every call that passes `narrow` passes `wide`.
  bool covers(Literals wide, Literals narrow) {
    return std::all_of(wide.begin(), wide.end(), [&](uint32_t l) {
      if (base::contains(narrow, l)) return true;
      values_.clear();
      bool reads_it = false;
      for (const uint32_t other : narrow)
        if (axis(other) == axis(l)) reads_it = true, add_values(other);
      if (!reads_it) return false;
      add_values(l);
      return std::all_of(values_.begin(), values_.end(), [&](const OpRules::Value& v) {
        if (!passes(narrow, axis(l), v)) return true;
        return !(is_unlisted(v) && is_pattern(l)) && passes({&l, 1}, axis(l), v);
      });
    });
  }

  // Makes a rule one that first_cover() can find.
  void file(uint32_t rule) {
    const Literals of = literals(rules_.rules_[rule]);
    const uint32_t* rarest = nullptr;  // of those that list values
    for (const uint32_t& l : of)
      if (l % 2 == 0 && lists_values(rules_.tests_[l / 2]) &&
          (rarest == nullptr || uses_[l / 2] < uses_[*rarest / 2]))
        rarest = &l;
    if (rarest == nullptr) return filed_[kAnyValue].push_back(rule);
    const Test& t = rules_.tests_[*rarest / 2];
    if (t.kind == Test::Kind::kInteger) filed_[{t.axis, t.integer.a, {}}].push_back(rule);
    for (uint32_t i = t.first; t.kind == Test::Kind::kOneOf && i < t.first + t.count; ++i)
      filed_[{t.axis, rules_.integers_[i], {}}].push_back(rule);
    for (uint32_t i = t.first; t.kind == Test::Kind::kTextOneOf && i < t.first + t.count; ++i)
      filed_[{t.axis, 0, rules_.texts_[i]}].push_back(rule);
  }

  // A filed rule that covers `narrow`, whose conditions can hold; null: there is none, or `most` comparisons found none.
  // A rule that covers it accepts each value that it accepts, so one value of each axis leads to all candidates.
  const CompiledRule* first_cover(Literals narrow, size_t& most) {
    const auto covering = [&](const Filed& at) -> const CompiledRule* {
      const auto under = filed_.find(at);
      if (under == filed_.end()) return nullptr;
      for (const uint32_t k : under->second) {
        if (most == 0) return nullptr;
        --most;
        const CompiledRule& rule = rules_.rules_[k];
        if (covers(literals(rule), narrow)) return &rule;
      }
      return nullptr;
    };
    if (const CompiledRule* found = covering(kAnyValue)) return found;
    for (const uint32_t l : narrow) {
      values_.clear();
      add_values(l);
      const auto v = std::find_if(values_.begin(), values_.end(), [&](const OpRules::Value& value) {
        return passes(narrow, axis(l), value);
      });
      if (v == values_.end()) continue;
      if (const CompiledRule* found = covering({axis(l), v->i, v->s})) return found;
    }
    return nullptr;
  }

 private:
  // An axis, and an integer or a text that a test of it lists.
  using Filed = std::tuple<uint16_t, int64_t, std::string_view>;
  static constexpr Filed kAnyValue{UINT16_MAX, 0, {}};
  static bool lists_values(const Test& t) {
    return t.kind == Test::Kind::kOneOf || t.kind == Test::Kind::kTextOneOf ||
           (t.kind == Test::Kind::kInteger && t.integer.kind == op::IntegerTest::Kind::kRange &&
            t.integer.a == t.integer.b);
  }

  static constexpr char kUnlisted[] = "\x01";
  static constexpr int64_t kUnlistedDevice = int64_t{1} << 40;

  bool is_pattern(uint32_t literal) const {
    const Test::Kind kind = rules_.tests_[literal / 2].kind;
    return kind == Test::Kind::kGlob || kind == Test::Kind::kRegex;
  }
  static bool is_unlisted(const OpRules::Value& v) {
    return v.s.data() == kUnlisted || v.i == kUnlistedDevice;
  }

  // Whether a value passes the literals on its axis. What no test names may match a pattern, or not: it passes.
  bool passes(Literals of, uint16_t index, const OpRules::Value& v) const {
    return std::all_of(of.begin(), of.end(), [&](uint32_t l) {
      if (axis(l) != index || (is_unlisted(v) && is_pattern(l))) return true;
      return rules_.holds(rules_.tests_[l / 2], v) == (l % 2 == 0);
    });
  }

  // Adds a value of each class that the test of a literal makes.
  void add_values(uint32_t literal) {
    const Test& t = rules_.tests_[literal / 2];
    const Axis& axis = rules_.axes_[t.axis];
    const auto integer = [&](int64_t i) { values_.push_back({true, i, {}}); };
    switch (axis.kind) {
      case Axis::Kind::kFlag: return integer(0), integer(1);
      case Axis::Kind::kLayout: return integer(0), integer(1), integer(2);
      case Axis::Kind::kText:
      case Axis::Kind::kLabel:
        for (uint32_t i = t.first; t.kind == Test::Kind::kTextOneOf && i < t.first + t.count; ++i)
          values_.push_back({true, 0, rules_.texts_[i]});
        values_.push_back({true, 0, std::string_view(kUnlisted)});
        return;
      case Axis::Kind::kDevice:
        // Of a type without an index, one with an index.
        for (uint32_t i = t.first; t.kind == Test::Kind::kDeviceOneOf && i < t.first + t.count; ++i)
          integer(rules_.integers_[i]), integer(rules_.integers_[i] | 0xffff);
        return integer(kUnlistedDevice);
      default: break;
    }
    cuts_.clear();
    if (t.kind == Test::Kind::kInteger) t.integer.add_cuts(cuts_);
    for (uint32_t i = t.first; t.kind == Test::Kind::kOneOf && i < t.first + t.count; ++i)
      op::IntegerTest::equals(rules_.integers_[i]).add_cuts(cuts_);
    if (t.kind == Test::Kind::kInteger && cuts_.empty()) integer(0);
    // Sizes are not negative.
    const bool size =
        axis.kind == Axis::Kind::kInteger && axis.field.kind != op::Field::Kind::kScalar;
    for (const int64_t cut : cuts_) {
      if (cut > (size ? 0 : INT64_MIN)) integer(cut - 1);
      if (!size || cut >= 0) integer(cut);
    }
  }

  const OpRules& rules_;
  std::vector<uint32_t> uses_;  // of each test
  std::map<Filed, std::vector<uint32_t>> filed_;
  std::vector<OpRules::Value> values_;
  std::vector<int64_t> cuts_;
};

namespace {

std::string field_advice(const std::string& key, const Names& fields) {
  // A field followed by something that is no operator.
  std::string_view known;
  for (const std::string& f : fields)
    if (f.size() > known.size() && key.starts_with(f + "_")) known = f;
  Names suffixes;
  for (const OperatorRow& row : operators()) suffixes.emplace_back(row.suffix);
  const std::string_view field = field_part(key);
  if (!known.empty() && field == key) {
    const std::string_view suffix =
        base::closest(std::string_view(key).substr(known.size()), suffixes);
    if (!suffix.empty()) return fmt::format("did you mean '{}{}'?", known, suffix);
  }
  const std::string_view near = base::closest(field, fields);
  if (!near.empty()) return fmt::format("did you mean '{}{}'?", near, key.substr(field.size()));
  Names plain;
  for (const std::string& f : fields)
    if (f.find('.') == std::string::npos) plain.push_back(f);
  const std::string name(base::is_bare_word(field) ? field.substr(0, 80) : "NAME");
  return fmt::format("expected {}, or a label as label.{}", base::one_of(plain), name);
}

class RuleChecks {
 public:
  RuleChecks(Checker& checker, RulePart part)
      : checker_(checker), compiler_(checker.config()), part_(part) {}

  // Compiles every condition for every op that it may apply to.
  void compile(RulesByOp* compiled) {
    for (const std::string& op : checker_.ops()) {
      const op::Program* program = checker_.known().program(op);
      if (program == nullptr) continue;
      OpRules rules = compiler_.compile(*program, &report_);
      if (part_ == RulePart::kAll) compare(rules);
      if (compiled != nullptr && !rules.empty())
        compiled->emplace(op, std::make_shared<const OpRules>(std::move(rules)));
    }
  }

  template <class Rule>
  void check(const std::vector<Rule>& rules, const char* section, bool score) {
    const std::vector<Effect>& effects = score ? score_effects_ : rule_effects_;
    for (size_t i = 0; i < rules.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", section, i);
      check_rule(rules[i], path, compiler_.index_of(score, i, 0));
      if (part_ == RulePart::kAll) check_effect(rules[i], effects[i], path);
    }
  }

 private:
  // Over all ops that a rule was compiled for.
  struct Effect {
    uint32_t ops = 0;
    uint32_t impossible = 0;         // where its conditions cannot all hold
    uint32_t shadowed = 0;           // where another rule comes first for all of its calls
    uint32_t by = 0;                 // that rule
    std::vector<size_t> conditions;  // that cannot all hold
  };

  // Finds rules that cannot have an effect on calls of an op.
  void compare(const OpRules& rules) {
    RuleSets sets(rules);
    const auto note = [&](const auto& rule, Effect& effect) {
      const RuleSets::Literals of = sets.literals(rule);
      ++effect.ops;
      const int axis = sets.impossible_axis(of);
      if (axis < 0) return false;
      ++effect.impossible;
      effect.conditions.clear();
      for (size_t i = 0; i < of.size(); ++i)
        if (sets.axis(of[i]) == axis) effect.conditions.push_back(i);
      return true;
    };
    for (const CompiledScore& s : rules.scores()) note(s, score_effects_[s.source]);
    const std::span<const CompiledRule> all = rules.rules();
    for (size_t i = 0; i < all.size(); ++i) {
      Effect& effect = rule_effects_[all[i].source];
      if (note(all[i], effect) || all[i].kernel == CompiledRule::kNone) continue;
      if (const CompiledRule* first = sets.first_cover(sets.literals(all[i]), comparisons_left_))
        ++effect.shadowed, effect.by = first->source;
      else if (has_kernel(rules, all[i].kernel))
        sets.file(static_cast<uint32_t>(i));
    }
  }
  bool has_kernel(const OpRules& rules, uint32_t kernel) const {
    const Names& ids = checker_.kernels_of(rules.op());
    return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
      return glob_matches(rules.kernels()[kernel], id);
    });
  }

  template <class Rule>
  void check_effect(const Rule& r, const Effect& effect, const std::string& path) {
    if (effect.ops == 0) return;
    if (effect.impossible == effect.ops) {
      Names keys;
      for (const size_t i : effect.conditions) keys.push_back(r.conditions[i].key);
      checker_.problem(Severity::kWarning, r.at, path + ".conditions",
                       fmt::format("no call can pass {}", fmt::join(keys, " and ")),
                       "the rule has no effect");
    } else if (effect.impossible + effect.shadowed == effect.ops) {
      checker_.problem(
          Severity::kWarning, r.at, path,
          fmt::format("dispatch_rules[{}] comes first for all of its calls", effect.by),
          "expected a higher priority, other conditions, or fallback_chains for a second choice");
    }
  }

  template <class Rule>
  void check_rule(const Rule& r, const std::string& path, size_t index) {
    bool chooses = !r.kernel.empty(), acts = chooses;
    if constexpr (std::is_same_v<Rule, DispatchRule>) acts = chooses || !r.deny.empty() || r.allow;
    // In files the reader has reported it.
    if (r.operation.empty() || !acts) {
      if (r.at.line == 0)
        checker_.error(r.at, path, "an op or a kernel is missing", "expected both");
      return;
    }
    if (part_ == RulePart::kConditions) {
      if (!checker_.matching(r.operation).empty()) check_conditions(r, path, index);
      return;
    }
    // What only excludes kernels holds once there is such an op.
    const Unknown unknown = chooses || r.optional ? unless(r.optional) : Unknown::kLater;
    if (!checker_.check_op(r.operation, unknown, r.operation_at, path + ".operation",
                           "the rule holds once there is one")) {
      if (chooses && !r.optional && !has_wildcard(r.operation)) check_of_unknown(r, path);
      return;
    }
    if (chooses)
      checker_.check_kernel(r.operation, r.kernel, unknown, r.kernel_at, path + ".kernel");
    if constexpr (std::is_same_v<Rule, DispatchRule>) {
      check_listed(r, r.deny, path + ".deny");
      if (r.allow) check_listed(r, *r.allow, path + ".allow");
    }
    check_conditions(r, path, index);
  }

  void check_listed(const DispatchRule& r, const std::vector<KernelRef>& refs,
                    const std::string& path) {
    for (size_t i = 0; i < refs.size(); ++i)
      checker_.check_kernel(r.operation, refs[i].id,
                            r.optional || refs[i].optional ? Unknown::kFine : Unknown::kLater,
                            refs[i].at, fmt::format("{}[{}]", path, i),
                            "it holds once there is one");
  }

  template <class Rule>
  void check_conditions(const Rule& r, const std::string& path, size_t index) {
    const auto seen = report_.seen.begin() + static_cast<ptrdiff_t>(index);
    const bool lacks_field =
        std::find(seen, seen + static_cast<ptrdiff_t>(r.conditions.size()),
                  ConditionReport::kNoField) != seen + static_cast<ptrdiff_t>(r.conditions.size());
    for (size_t i = 0; i < r.conditions.size(); ++i) {
      const Condition& c = r.conditions[i];
      const auto& from = lacks_field ? report_.maybe : report_.wrong;
      const auto wrong = from.find(index + i);
      if (wrong != from.end())
        checker_.error(c.at, condition_path(path, c.key), wrong->second.found, wrong->second.right);
      else if (report_.seen[index + i] == ConditionReport::kNoField)
        unknown_field(r.operation, c, condition_path(path, c.key));
    }
  }

  // The op is unknown. The rest is checked against the op that was probably meant, or else for what no op accepts.
  template <class Rule>
  void check_of_unknown(const Rule& r, const std::string& path) {
    const std::string meant(base::closest(r.operation, checker_.ops()));
    if (meant.empty())
      checker_.anywhere({r.kernel, r.optional, r.kernel_at}, Unknown::kError, path + ".kernel");
    else
      checker_.check_kernel(meant, r.kernel, unless(r.optional), r.kernel_at, path + ".kernel");
    const Names& ops = meant.empty() ? checker_.ops() : checker_.matching(meant);
    for (const Condition& c : r.conditions) {
      Wrong wrong;
      const Fit fit = best_fit(ops, c, wrong);
      if (fit == Fit::kWrong)
        checker_.error(c.at, condition_path(path, c.key), wrong.found, wrong.right);
      else if (fit == Fit::kNoField && !meant.empty())
        unknown_field(meant, c, condition_path(path, c.key));
    }
  }

  enum class Fit : uint8_t { kNoField, kWrong, kFine };

  // The best fit of a condition over several ops.
  Fit best_fit(const Names& ops, const Condition& c, Wrong& wrong) {
    Fit best = Fit::kNoField;
    for (const std::string& op : ops) {
      const op::Program* program = checker_.known().program(op);
      if (program == nullptr) return Fit::kFine;  // its fields are not known
      std::unique_ptr<OpFields>& fields = op_fields_[op];
      if (fields == nullptr) fields = std::make_unique<OpFields>(*program);
      const SplitKey key = split_key(c.key, *fields);
      if (key.field == nullptr) continue;
      OpRules scratch;
      std::vector<uint32_t> literals;
      Wrong here;
      if (ConditionCompiler(scratch).add(*key.field, key.op, c, literals, here)) return Fit::kFine;
      if (best == Fit::kNoField) wrong = std::move(here);
      best = Fit::kWrong;
    }
    return best;
  }

  const Names& fields_of(const std::string& ops) {
    const auto [it, is_new] = fields_.try_emplace(ops);
    if (!is_new) return it->second;
    for (const std::string& op : checker_.matching(ops))
      if (const op::Program* program = checker_.known().program(op))
        for (std::string& name : OpFields(*program).names()) it->second.push_back(std::move(name));
    sort_names(it->second);
    return it->second;
  }

  void unknown_field(const std::string& ops, const Condition& c, const std::string& path) {
    // An op whose fields are not known may have it.
    for (const std::string& op : checker_.matching(ops))
      if (checker_.known().program(op) == nullptr) return;
    const Names& fields = fields_of(ops);
    const std::string what = has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                                               : "calls of " + ops + " have no such field";
    checker_.error(c.at, path, what, field_advice(c.key, fields));
  }

  Checker& checker_;
  const RuleCompiler compiler_;
  const RulePart part_;
  ConditionReport report_ = compiler_.empty_report();
  size_t comparisons_left_ = 50'000;  // of two rules; beyond it, shadowed rules go unreported
  std::vector<Effect> rule_effects_ = std::vector<Effect>(checker_.config().dispatch_rules.size());
  std::vector<Effect> score_effects_ = std::vector<Effect>(checker_.config().score.size());
  std::map<std::string, Names> fields_;
  std::map<std::string, std::unique_ptr<OpFields>> op_fields_;
};

}  // namespace

RuleProblems check_rules(Checker& checker, RulePart part, RulesByOp* compiled) {
  RuleChecks checks(checker, part);
  checks.compile(compiled);
  checks.check(checker.config().dispatch_rules, "dispatch_rules", false);
  RuleProblems to{std::exchange(checker.problems(), {}), {}};
  checks.check(checker.config().score, "score", true);
  to.scores = std::exchange(checker.problems(), {});
  return to;
}

}  // namespace yard::policy
