// SPDX-License-Identifier: Apache-2.0
// Calls on which to try rules: sample_calls() of generator.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "base/lists.h"
#include "base/text.h"
#include "op/call.h"
#include "policy/clauses.h"
#include "policy/fields.h"
#include "verify/generator.h"

namespace yard::verification {
namespace {

constexpr int64_t kMostCount = 64;  // tensors in a list
constexpr int64_t kGap = 8;         // elements between rows

constexpr DType kUsualTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                 DType::i32, DType::i64,  DType::i8};

void lay_out(op::TensorSpec& t, int layout) {
  if (layout != 0) t.strides = strides_of(t.shape, layout == 2 ? 2 : 1, layout == 1 ? kGap : 0);
}

// The value of a field as rules see it. Integers also represent switches, dtypes, and indices into the field's list of
// words; strings also represent devices; monostate is an unset label.
using FieldValue = std::variant<std::monostate, int64_t, double, std::string>;
struct FieldConstraint {
  const policy::OpField* field = nullptr;
  FieldValue value;
};

// Values where no constraint applies.
struct CallDefaults {
  int64_t rows = 8, size = 128;  // of leading groups, of other dimensions
  size_t dtype = 0;              // index into the list of dtypes of each variable
  bool optionals = true;         // whether they are given
  int layout = 0;                // 0 contiguous, 1 padded rows, 2 strided elements
  uint32_t flags = 0;
};

// Builds calls with given values of some fields.
class CallBuilder {
 public:
  // `program` and `op` must outlive it; `op` has the shape function, if the schema needs one.
  CallBuilder(const op::Program& program, const yard_op_t* op)
      : program_(program),
        s_(program.schema()),
        op_(op),
        solver_(s_, std::numeric_limits<int64_t>::max()),
        types_(types_by_variable(s_, kUsualTypes)) {}

  // Empty if the constraints contradict each other or the schema.
  std::optional<op::Call> call(const CallDefaults& defaults,
                               std::span<const FieldConstraint> constraints) const {
    Draft draft;
    draft.defaults = defaults, draft.flags = defaults.flags;
    draft.layouts.assign(s_.params.size(), defaults.layout);
    draft.counts.assign(s_.params.size(), 2);
    for (const op::Param& p : s_.params) {
      draft.assignment.present.push_back(defaults.optionals || !p.optional);
      const auto* given = std::get_if<int64_t>(&p.fallback);
      if (p.kind == op::Kind::kInt)
        draft.assignment.numbers[p.name] = given != nullptr ? *given : 1;
      for (const op::Dim& d : p.dims) {
        if (d.kind == op::Dim::Kind::kLeading) draft.assignment.groups[d.name] = {defaults.rows};
        if (d.kind == op::Dim::Kind::kNamed)
          draft.assignment.numbers.try_emplace(d.name, defaults.size);
      }
    }
    for (const FieldConstraint& w : constraints)
      if (!apply(w, draft)) return std::nullopt;
    for (const auto& [variable, list] : types_)
      draft.types.try_emplace(variable, list[defaults.dtype % list.size()]);
    Random random(1);
    solver_.require_optionals(draft.assignment, draft.types, random);
    solver_.repair(draft.assignment, draft.pinned, random);
    op::CallSpec spec;
    spec.op = s_.name, spec.flags = draft.flags, spec.device = draft.device;
    spec.labels.assign(draft.labels.begin(), draft.labels.end());
    for (size_t i = 0; i < s_.params.size(); ++i) {
      const op::Param& p = s_.params[i];
      if (!draft.assignment.present[i]) continue;
      auto value = p.is_tensor() ? tensors(i, draft) : scalar(p, draft);
      if (value) spec.args.push_back({p.name, *std::move(value)});
    }
    auto call = op::Call::from_spec(program_, spec, op_);
    if (!call.ok()) return std::nullopt;
    return *std::move(call);
  }

  std::vector<DType> dtypes(size_t param) const {
    const op::Param& p = s_.params[param];
    return p.variable.empty() ? std::vector<DType>{p.dtype} : types_.at(p.variable);
  }

  size_t most_dtypes() const {
    size_t most = 1;
    for (const auto& [name, list] : types_) most = std::max(most, list.size());
    return most;
  }

 private:
  struct Draft {
    CallDefaults defaults;
    Assignment assignment;
    std::set<std::string> pinned;  // names in the assignment
    std::map<std::string, op::SpecValue> scalars;
    VariableTypes types;
    std::vector<int> layouts;     // by parameter
    std::vector<int64_t> counts;  // by parameter
    std::map<std::string, std::string> labels;
    Device device;
    uint32_t flags = 0;

    // A name can have one value only.
    bool pin(const std::string& name, int64_t value) {
      if (value < 0 && assignment.groups.contains(name)) return false;
      assignment.set(name, value);
      return pinned.insert(name).second;
    }
  };

  bool apply(const FieldConstraint& constraint, Draft& to) const {
    const policy::Axis& axis = constraint.field->axis;
    const auto* i = std::get_if<int64_t>(&constraint.value);
    const auto* f = std::get_if<double>(&constraint.value);
    const auto* text = std::get_if<std::string>(&constraint.value);
    const std::string& argument = s_.params.empty() ? s_.name : s_.params[axis.arg].name;
    using Kind = policy::Axis::Kind;
    const bool whole =
        axis.kind == Kind::kInteger || axis.kind == Kind::kLayout || axis.kind == Kind::kFlag;
    if (whole && i == nullptr) return false;
    switch (axis.kind) {
      case Kind::kInteger: return apply_integer(axis.field, constraint.field->name, *i, to);
      case Kind::kNumber:
        if (f != nullptr) to.scalars[argument] = {*f};
        return f != nullptr;
      case Kind::kText:
        if (text != nullptr) to.scalars[argument] = {*text};
        return text != nullptr;
      case Kind::kLayout: {
        const bool flag = constraint.field->type == policy::FieldType::kSwitch;
        const int layout = flag ? (*i != 0 ? 0 : 1) : static_cast<int>(*i);
        std::fill_n(to.layouts.begin() + axis.arg, axis.count, layout);
        return true;
      }
      case Kind::kFlag:
        to.flags = *i != 0 ? to.flags | axis.flag : to.flags & ~axis.flag;
        return true;
      case Kind::kDevice: {
        const auto device = text != nullptr ? parse_device(*text) : std::nullopt;
        if (device) to.device = *device;
        return device.has_value();
      }
      case Kind::kLabel:
      case Kind::kLabelInteger:
        if (i != nullptr) to.labels[axis.label] = std::to_string(*i);
        if (text != nullptr) to.labels[axis.label] = *text;
        return true;
    }
    return false;
  }

  bool apply_integer(const op::Field& field, const std::string& name, int64_t value,
                     Draft& to) const {
    const uint8_t arg = field.sources[0].arg;
    const op::Param& p = s_.params[arg];
    switch (field.kind) {
      case op::Field::Kind::kDim:
      case op::Field::Kind::kProduct: return to.pin(name, value);
      case op::Field::Kind::kScalar:
        if (p.kind == op::Kind::kInt) return to.pin(name, value);
        if (p.kind == op::Kind::kBool)
          to.scalars[p.name] = {value != 0};
        else if (value >= 0 && static_cast<size_t>(value) < p.enumerators.size())
          to.scalars[p.name] = {op::Word{p.enumerators[static_cast<size_t>(value)]}};
        else
          return false;
        return true;
      case op::Field::Kind::kRank: {
        const auto trailing = static_cast<int64_t>(p.trailing());
        if (!p.has_leading()) return value == trailing;
        if (value < trailing || value > YARD_MAX_RANK) return false;
        auto& group = to.assignment.groups[p.dims[0].name];
        group.assign(static_cast<size_t>(value - trailing), 1);
        if (!group.empty()) group.back() = to.defaults.rows;
        return to.pinned.insert(p.dims[0].name).second;
      }
      case op::Field::Kind::kSize: return apply_size(p, value, to);
      case op::Field::Kind::kCount:
        to.counts[arg] = value;
        return value >= 0 && value <= kMostCount;
      case op::Field::Kind::kDType:
        if (!p.variable.empty()) to.types[p.variable] = static_cast<DType>(value);
        return true;
      default: break;  // no condition names the others
    }
    return false;
  }

  // Puts all elements into the first dimension that can have that size.
  static bool apply_size(const op::Param& param, int64_t value, Draft& to) {
    bool placed = false;
    for (const op::Dim& d : param.dims) {
      if (d.kind != op::Dim::Kind::kLeading && d.kind != op::Dim::Kind::kNamed) continue;
      const int64_t each = d.kind == op::Dim::Kind::kNamed ? d.number : 1;
      const bool here = !placed && value % each == 0;
      if (!to.pin(d.name, here ? value / each : 1)) return false;
      placed |= here;
    }
    return placed;
  }

  std::optional<op::SpecValue> tensors(size_t param, const Draft& from) const {
    const op::Param& p = s_.params[param];
    if (p.kind == op::Kind::kTensor && is_inferred(program_, op_, p)) return std::nullopt;
    op::TensorSpec t;
    t.dtype = p.variable.empty() ? p.dtype : from.types.at(p.variable);
    for (const op::Dim& d : p.dims) {
      switch (d.kind) {
        case op::Dim::Kind::kAny: t.shape.push_back(from.defaults.size); break;
        case op::Dim::Kind::kConstant: t.shape.push_back(d.number); break;
        case op::Dim::Kind::kNamed:
          t.shape.push_back(d.number * from.assignment.numbers.at(d.name));
          break;
        case op::Dim::Kind::kLeading: {
          const std::vector<int64_t>& group = from.assignment.groups.at(d.name);
          t.shape.insert(t.shape.end(), group.begin(), group.end());
        }
      }
    }
    lay_out(t, from.layouts[param]);
    if (p.kind == op::Kind::kTensor) return op::SpecValue{std::move(t)};
    return op::SpecValue{
        std::vector<op::TensorSpec>(static_cast<size_t>(from.counts[param]), std::move(t))};
  }

  std::optional<op::SpecValue> scalar(const op::Param& p, const Draft& from) const {
    if (const auto it = from.scalars.find(p.name); it != from.scalars.end()) return it->second;
    if (p.kind == op::Kind::kInt) return op::SpecValue{from.assignment.numbers.at(p.name)};
    if (!std::holds_alternative<std::monostate>(p.fallback)) return std::nullopt;
    switch (p.kind) {
      case op::Kind::kFloat: return op::SpecValue{1.0};
      case op::Kind::kBool: return op::SpecValue{false};
      case op::Kind::kEnum: return op::SpecValue{op::Word{p.enumerators[0]}};
      default: return op::SpecValue{std::string()};
    }
  }

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  const SizeSolver solver_;
  const std::map<std::string, std::vector<DType>> types_;  // by variable
};

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
      if (to.field->type != FieldType::kText && to.field->axis.kind != policy::Axis::Kind::kDevice)
        continue;
      for (std::string& text : texts_like(op, v.text)) to.add(std::move(text));
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

  void add_defaults() {
    const CallDefaults small{1, 128}, large{64, 4096};
    for (size_t t = 0; t < builder_.most_dtypes(); ++t)
      for (CallDefaults p : {small, large}) {
        p.dtype = t;
        add(p, {});
      }
    std::vector<CallDefaults> others(6, large);
    others[0].layout = 1, others[1].layout = 2, others[2].optionals = false;
    others[3].flags = YARD_CALL_DETERMINISTIC, others[4].flags = YARD_CALL_CAPTURING;
    others[5].flags = YARD_CALL_INFERENCE;
    for (const CallDefaults& p : others) add(p, {});
  }

  void add_rule(const std::string& operation, const std::vector<Condition>& conditions) {
    if (full() || !glob_matches(operation, program_.schema().name)) return;
    std::vector<Choice> all = choices(conditions);
    std::vector<FieldConstraint> constraints;
    for (const Choice& c : all) {
      if (c.values.empty()) return;
      constraints.push_back({c.field, find_matching(c)});
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

  std::vector<std::string> take() { return std::move(texts_); }

 private:
  bool full() const { return texts_.size() >= limit_; }

  void add(const CallDefaults& defaults, std::span<const FieldConstraint> constraints) {
    if (full()) return;
    const auto call = builder_.call(defaults, constraints);
    if (!call) return;
    std::string text = op::to_string(call->to_spec(program_));
    if (seen_.insert(text).second) texts_.push_back(std::move(text));
  }

  // Empty if the op lacks a field of the rule.
  std::vector<Choice> choices(const std::vector<Condition>& conditions) {
    std::vector<Choice> to;
    for (const Condition& c : conditions) {
      const policy::SplitKey key = policy::split_key(c.key, fields_);
      if (key.field == nullptr) return {};
      auto it = std::find_if(to.begin(), to.end(), [&](const Choice& x) {
        return x.field->axis.reads_same(key.field->axis) && x.field->type == key.field->type;
      });
      if (it == to.end()) it = to.insert(to.end(), Choice{key.field, {}, {}});
      it->conditions.push_back(c);
      add_values(builder_, key.op, c, *it);
    }
    return to;
  }

  // The first value for which a rule with the conditions on this field alone matches, or the first one.
  FieldValue find_matching(const Choice& choice) const {
    Config config;
    DispatchRule rule;
    rule.operation = program_.schema().name, rule.kernel = "*";
    rule.conditions = choice.conditions;
    config.dispatch_rules.push_back(std::move(rule));
    const policy::OpRules rules = policy::compile_rules(config, program_);
    for (const FieldValue& v : choice.values) {
      const FieldConstraint constraint{choice.field, v};
      const auto call = builder_.call({}, {&constraint, 1});
      if (call &&
          !rules.match({call->args(), call->flags(), call->device(), &call->labels()}).empty())
        return v;
    }
    return choice.values[0];
  }

  const op::Program& program_;
  policy::OpFields fields_;
  const CallBuilder builder_;
  const size_t limit_;
  std::vector<std::string> texts_;
  std::set<std::string> seen_;
};

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

}  // namespace yard::verification
