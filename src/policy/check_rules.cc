// SPDX-License-Identifier: Apache-2.0
// Rules and score entries: their ops, their kernels, and their conditions against the fields of calls.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/text.h"
#include "policy/check.h"
#include "policy/fields.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

std::string condition_path(const std::string& path, const Condition& c) {
  const bool plain = base::is_bare_word(c.key) && c.key.size() <= 120;
  return plain ? path + ".conditions." + c.key : path + ".conditions[" + base::excerpt(c.key) + "]";
}

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
      if (compiled != nullptr && !rules.empty())
        compiled->emplace(op, std::make_shared<const OpRules>(std::move(rules)));
    }
  }

  template <class Rule>
  void check(const std::vector<Rule>& rules, const char* section, bool score) {
    for (size_t i = 0; i < rules.size(); ++i)
      check_rule(rules[i], fmt::format("{}[{}]", section, i), compiler_.index_of(score, i, 0));
  }

 private:
  template <class Rule>
  void check_rule(const Rule& r, const std::string& path, size_t index) {
    // In files the reader has reported it.
    if (r.operation.empty() || r.kernel.empty()) {
      if (r.at.line == 0)
        checker_.error(r.at, path, "an op or a kernel is missing", "expected both");
      return;
    }
    if (part_ == RulePart::kConditions) {
      if (!checker_.matching(r.operation).empty()) check_conditions(r, path, index);
      return;
    }
    if (!checker_.check_op(r.operation, r.optional, r.operation_at, path + ".operation")) {
      if (!r.optional && !has_wildcard(r.operation)) check_of_unknown(r, path);
      return;
    }
    checker_.check_kernel(r.operation, r.kernel, r.optional, r.kernel_at, path + ".kernel");
    check_conditions(r, path, index);
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
        checker_.error(c.at, condition_path(path, c), wrong->second.found, wrong->second.right);
      else if (report_.seen[index + i] == ConditionReport::kNoField)
        unknown_field(r.operation, c, condition_path(path, c));
    }
  }

  // The op is unknown. The rest is checked against the op that was probably meant, or else for what no op accepts.
  template <class Rule>
  void check_of_unknown(const Rule& r, const std::string& path) {
    const std::string meant(base::closest(r.operation, checker_.ops()));
    if (meant.empty())
      checker_.anywhere({r.kernel, r.optional, r.kernel_at}, path + ".kernel");
    else
      checker_.check_kernel(meant, r.kernel, r.optional, r.kernel_at, path + ".kernel");
    const Names& ops = meant.empty() ? checker_.ops() : checker_.matching(meant);
    for (const Condition& c : r.conditions) {
      Wrong wrong;
      const Fit fit = best_fit(ops, c, wrong);
      if (fit == Fit::kWrong)
        checker_.error(c.at, condition_path(path, c), wrong.found, wrong.right);
      else if (fit == Fit::kNoField && !meant.empty())
        unknown_field(meant, c, condition_path(path, c));
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
