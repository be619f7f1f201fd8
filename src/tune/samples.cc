// SPDX-License-Identifier: Apache-2.0
#include "base/lists.h"
#include "tune/call_builder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "policy/fields.h"
#include "tune/call_builder.h"

namespace yard::tune {
namespace {

using policy::FieldType;
using policy::Operator;
using policy::OpField;

constexpr int64_t kMostWhole = 1ll << 40;  // no tensor is larger; sums and products stay in range
constexpr const char* kOther = "other";    // a text that no rule mentions

// Texts that the pattern is likely to match; find_matching() checks.
std::vector<std::string> texts_like(Operator op, const std::string& pattern) {
  if (op != Operator::kMatch && op != Operator::kRegex) return {pattern};
  std::vector<std::string> to(1);
  for (const char c : pattern) {
    if (op == Operator::kRegex && c == '|')
      to.emplace_back();
    else if (c == '?' && op == Operator::kMatch)
      to.back() += 'x';
    else if (std::string_view("*^$()\\+").find(c) == std::string_view::npos ||
             (c == '+' && op == Operator::kMatch))
      to.back() += c;
  }
  return to;
}

// The conditions of one rule on one field, and values to try.
struct Choice {
  const OpField* field = nullptr;
  std::vector<Condition> conditions;
  std::vector<FieldValue> values;
  std::vector<FieldValue> matching;  // for which the conditions hold

  void add(FieldValue v) {
    if (!base::contains(values, v)) values.push_back(std::move(v));
  }
};

void add_values(const CallBuilder& builder, Operator op, const Condition& c, Choice& to) {
  const auto all = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) to.add(static_cast<int64_t>(i));
  };
  for (const ConfigValue& v : c.values) {
    if (to.field->type == FieldType::kWhole) {
      const auto n = base::number<int64_t>(v.text);
      if (!n || *n < -kMostWhole || *n > kMostWhole) continue;
      for (const int64_t step : {0, -1, 1}) to.add(*n + step);
    } else if (to.field->type == FieldType::kNumber) {
      const auto n = base::number<double>(v.text);
      if (!n || !std::isfinite(*n)) continue;
      const double step = *n == 0 ? 0.5 : std::abs(*n) / 2;
      for (const double at : {*n, *n - step, *n + step}) to.add(at);
    } else {
      for (std::string& text : texts_like(op, v.text)) {
        if (to.field->type == FieldType::kText)
          to.add(std::move(text));
        else if (to.field->axis.kind == policy::Axis::Kind::kDevice)
          to.add(std::move(text));
      }
    }
  }
  switch (to.field->type) {
    case FieldType::kSwitch: return all(2);
    case FieldType::kWord: return all(to.field->words.size());
    case FieldType::kDType:
      for (const DType t : builder.dtypes(to.field->axis.field.sources[0].arg))
        to.add(static_cast<int64_t>(t));
      return;
    case FieldType::kText: to.add(kOther); break;
    case FieldType::kDevice:
    case FieldType::kPlatform: return to.add("cpu");
    default: break;
  }
  if (!to.field->axis.label.empty()) to.add(std::monostate());
}

class Sampler {
 public:
  Sampler(const op::Program& program, const yard_op_t* op, size_t limit)
      : program_(program), fields_(program), builder_(program, op), limit_(limit) {}

  void add_defaults();
  void add_rule(const std::string& operation, const std::vector<Condition>& conditions);
  bool full() const { return texts_.size() >= limit_; }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  void add(const CallDefaults& defaults, std::span<const FieldConstraint> constraints);
  // Empty if the op lacks a field of the rule.
  std::vector<Choice> choices(const std::vector<Condition>& conditions);
  void find_matching(Choice& choice) const;

  const op::Program& program_;
  policy::OpFields fields_;
  const CallBuilder builder_;
  const size_t limit_;
  std::vector<std::string> texts_;
  std::set<std::string> seen_;
};

void Sampler::add(const CallDefaults& defaults, std::span<const FieldConstraint> constraints) {
  if (full()) return;
  const auto call = builder_.call(defaults, constraints);
  if (!call) return;
  std::string text = op::to_string(call->to_spec(program_));
  if (seen_.insert(text).second) texts_.push_back(std::move(text));
}

void Sampler::add_defaults() {
  const CallDefaults small{1, 128}, large{64, 4096};
  for (size_t t = 0; t < builder_.most_dtypes(); ++t)
    for (CallDefaults p : {small, large}) {
      p.dtype = t;
      add(p, {});
    }
  for (const int layout : {1, 2}) {
    CallDefaults p = large;
    p.layout = layout;
    add(p, {});
  }
  CallDefaults p = large;
  p.optionals = false;
  add(p, {});
  for (const uint32_t flag : {YARD_CALL_DETERMINISTIC, YARD_CALL_CAPTURING, YARD_CALL_INFERENCE}) {
    p = large;
    p.flags = flag;
    add(p, {});
  }
}

std::vector<Choice> Sampler::choices(const std::vector<Condition>& conditions) {
  std::vector<Choice> to;
  for (const Condition& c : conditions) {
    const policy::SplitKey key = policy::split_key(c.key, fields_);
    if (key.field == nullptr) return {};
    auto it = std::find_if(to.begin(), to.end(), [&](const Choice& x) {
      return x.field->axis.reads_same(key.field->axis) && x.field->type == key.field->type;
    });
    if (it == to.end()) it = to.insert(to.end(), Choice{key.field, {}, {}, {}});
    it->conditions.push_back(c);
    add_values(builder_, key.op, c, *it);
  }
  return to;
}

// Evaluates a rule with the conditions on this field alone.
void Sampler::find_matching(Choice& choice) const {
  Config config;
  DispatchRule rule;
  rule.operation = program_.schema().name, rule.kernel = "*";
  rule.conditions = choice.conditions;
  config.dispatch_rules.push_back(std::move(rule));
  const policy::OpRules rules = policy::RuleCompiler(config).compile(program_);
  policy::Matches matches;
  for (const FieldValue& v : choice.values) {
    const FieldConstraint constraint{choice.field, v};
    const auto call = builder_.call({}, {&constraint, 1});
    if (!call) continue;
    rules.match({call->args(), call->flags(), call->device(), &call->labels()}, matches);
    if (!matches.rules.empty()) choice.matching.push_back(v);
  }
}

void Sampler::add_rule(const std::string& operation, const std::vector<Condition>& conditions) {
  if (full() || !glob_matches(operation, program_.schema().name)) return;
  std::vector<Choice> all = choices(conditions);
  std::vector<FieldConstraint> constraints;
  for (Choice& c : all) {
    find_matching(c);
    if (c.values.empty()) return;
    constraints.push_back({c.field, c.matching.empty() ? c.values[0] : c.matching[0]});
  }
  add({}, constraints);
  for (size_t i = 0; i < all.size(); ++i) {
    const FieldValue usual = constraints[i].value;
    for (const FieldValue& v : all[i].values) {
      constraints[i].value = v;
      add({}, constraints);
    }
    constraints[i].value = usual;
  }
}

}  // namespace

std::vector<std::string> sample_calls(const op::Program& program, const yard_op_t* op,
                                      std::span<const Config> configs, size_t limit) {
  Sampler sampler(program, op, limit);
  sampler.add_defaults();
  for (const Config& c : configs) {
    for (const DispatchRule& r : c.dispatch_rules) sampler.add_rule(r.operation, r.conditions);
    for (const ScoreRule& r : c.score) sampler.add_rule(r.operation, r.conditions);
  }
  return sampler.take();
}

}  // namespace yard::tune
