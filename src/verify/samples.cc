// SPDX-License-Identifier: Apache-2.0
// Makes sample calls on which to try rules.
#include <cmath>
#include <limits>

#include "base/lists.h"
#include "policy/clauses.h"
#include "verify/generator.h"

namespace yard::verification {
namespace {

using policy::Axis;

constexpr int64_t kMostCount = 64;         // tensors in a list
constexpr int64_t kGap = 8;                // elements between rows
constexpr int64_t kMostWhole = 1ll << 40;  // keeps sums and products in range
constexpr const char* kOther = "other";    // a text that no rule mentions

constexpr DType kUsualTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                 DType::i32, DType::i64,  DType::i8};

struct Value {
  bool there = true;
  int64_t i = 0;
  std::string s = {};
  bool operator==(const Value&) const = default;
};
struct Constraint {
  const Axis* axis;
  Value value;
};

// The inverse of policy::ordered().
double unordered(int64_t i) { return std::bit_cast<double>(i >= 0 ? i : INT64_MIN - i); }

int64_t value_of(const Device& d) { return (int64_t{d.type} << 16) | (d.index + 1); }

// Returns texts for which the test is likely to hold. find_matching() checks them.
std::vector<std::string> texts_like(policy::Test::Kind kind, const std::string& pattern) {
  if (kind == policy::Test::Kind::kTextOneOf) return {pattern};
  const bool regex = kind == policy::Test::Kind::kRegex;
  std::vector<std::string> to(1);
  for (const char c : pattern) {
    if (regex && c == '|')
      to.emplace_back();
    else if (c == '?' && !regex)
      to.back() += 'x';
    else if (std::string_view("*^$()\\").find(c) == std::string_view::npos && !(c == '+' && regex))
      to.back() += c;
  }
  return to;
}

// A call under construction. It starts with the values of a call without constraints.
struct Draft {
  int64_t rows = 8, size = 128;  // of leading groups, of other dimensions
  size_t dtype = 0;              // index into the list of dtypes of each variable
  bool optionals = true;         // whether optional arguments are given
  int layout = 0;                // 0 contiguous, 1 padded rows, 2 strided elements
  uint32_t flags = 0;

  Assignment assignment = {};
  std::set<std::string> pinned = {};  // names in the assignment
  std::map<std::string, op::SpecValue> scalars = {};
  VariableTypes types = {};
  std::vector<int> layouts = {};     // by parameter
  std::vector<int64_t> counts = {};  // by parameter
  std::map<std::string, std::string> labels = {};
  Device device = {};

  // Returns false if the name has a value already.
  bool pin(const std::string& name, int64_t value) {
    if (value < 0 && assignment.groups.contains(name)) return false;
    assignment.set(name, value);
    return pinned.insert(name).second;
  }
};

class Sampler {
 public:
  // Borrows `program` and `op`. `op` has the shape function, if the schema needs one.
  Sampler(const op::Program& program, const yard_op_t* op, size_t limit)
      : program_(program),
        s_(program.schema()),
        op_(op),
        limit_(limit),
        solver_(s_, std::numeric_limits<int64_t>::max()),
        types_(types_by_variable(s_, kUsualTypes)) {}

  void add_defaults() {
    size_t dtypes = 1;
    for (const auto& [name, list] : types_) dtypes = std::max(dtypes, list.size());
    for (size_t t = 0; t < dtypes; ++t) {
      add({.rows = 1, .dtype = t}, {});
      add({.rows = 64, .size = 4096, .dtype = t}, {});
    }
    std::vector<Draft> others(6, {.rows = 64, .size = 4096});
    others[0].layout = 1, others[1].layout = 2, others[2].optionals = false;
    others[3].flags = YARD_CALL_DETERMINISTIC, others[4].flags = YARD_CALL_CAPTURING;
    others[5].flags = YARD_CALL_INFERENCE;
    for (const Draft& d : others) add(d, {});
  }

  void add_rule(const std::string& operation, const std::vector<Condition>& conditions) {
    if (full() || !glob_matches(operation, s_.name)) return;
    Config config;
    DispatchRule& rule = config.dispatch_rules.emplace_back();
    rule.operation = operation, rule.kernel = "*", rule.conditions = conditions;
    const policy::OpRules rules = policy::compile_rules(config, program_);
    if (rules.empty()) return;
    const auto axes = rules.conditions().axes();
    std::vector<std::vector<Value>> all;
    std::vector<Constraint> constraints;
    for (uint16_t a = 0; a < axes.size(); ++a) {
      all.push_back(values(rules.conditions(), a));
      if (all.back().empty()) return;
      constraints.push_back({&axes[a], find_matching(rules, a, all.back())});
    }
    add({}, constraints);
    for (size_t a = 0; a < all.size(); ++a) {
      const Value usual = constraints[a].value;
      for (const Value& v : all[a]) {
        constraints[a].value = v;
        add({}, constraints);
      }
      constraints[a].value = usual;
    }
  }

  std::vector<std::string> take() { return std::move(texts_); }

 private:
  bool full() const { return texts_.size() >= limit_; }

  void add(Draft draft, std::span<const Constraint> constraints) {
    if (full()) return;
    const auto call = make(std::move(draft), constraints);
    if (!call) return;
    std::string text = op::to_string(call->to_spec(program_));
    if (seen_.insert(text).second) texts_.push_back(std::move(text));
  }

  // Returns values on both sides of each test of an axis, or all values if there are few.
  std::vector<Value> values(const policy::Conditions& conditions, uint16_t a) const {
    const Axis& axis = conditions.axes()[a];
    const bool number = axis.kind == Axis::Kind::kNumber, device = axis.kind == Axis::Kind::kDevice;
    std::vector<Value> to;
    const auto add = [&](Value v) {
      if (!base::contains(to, v)) to.push_back(std::move(v));
    };
    for (const int64_t i : axis.domain) add({.i = i});
    if (to.empty() && axis.kind == Axis::Kind::kInteger &&
        axis.field.kind == op::Field::Kind::kDType)
      for (const DType t : types_.at(s_.params[axis.field.sources[0].arg].variable))
        add({.i = static_cast<int64_t>(t)});
    const bool all = !to.empty();
    for (const int64_t cut : axis.cuts) {
      if (all || (!number && (cut < -kMostWhole || cut > kMostWhole))) continue;
      for (const int64_t i : {cut, cut - 1, cut + 1})
        if (!number || std::isfinite(unordered(i))) add({.i = i});
    }
    for (const policy::Test& t : conditions.tests()) {
      if (t.axis != a) continue;
      if (t.kind == policy::Test::Kind::kDeviceOneOf)
        for (const int64_t i : t.integers) add({.i = (i & 0xffff) != 0 ? i : i + 1});
      for (const std::string& text : t.texts)
        for (std::string& like : texts_like(t.kind, text)) {
          if (!device)
            add({.s = std::move(like)});
          else if (const auto d = parse_device(like))
            add({.i = value_of(*d)});
        }
    }
    if (device) add({.i = value_of({})});
    if (axis.is_text()) add({.s = kOther});
    if (!axis.label.empty()) add({.there = false});
    return to;
  }

  // Returns the first value for which all conditions on this axis hold, or the first of all.
  Value find_matching(const policy::OpRules& rules, uint16_t a,
                      const std::vector<Value>& values) const {
    const policy::Conditions& conditions = rules.conditions();
    const Axis& axis = conditions.axes()[a];
    const auto matches = [&](const Value& value) {
      const Constraint constraint{&axis, value};
      const auto call = make({}, {&constraint, 1});
      if (!call) return false;
      const auto found = axis.read({call->args(), call->flags(), call->device(), &call->labels()});
      return std::ranges::none_of(
          conditions.literals(rules.clauses()[0].when), [&](uint32_t literal) {
            const policy::Test& t = conditions.tests()[literal / 2];
            return t.axis == a && (!found.there || t.holds(found) == (literal % 2 != 0));
          });
    };
    const auto first = std::ranges::find_if(values, matches);
    return first != values.end() ? *first : values[0];
  }

  // Returns nullopt if the constraints contradict each other or the schema.
  std::optional<op::Call> make(Draft draft, std::span<const Constraint> constraints) const {
    draft.layouts.assign(s_.params.size(), draft.layout);
    draft.counts.assign(s_.params.size(), 2);
    for (const op::Param& p : s_.params) {
      draft.assignment.present.push_back(draft.optionals || !p.optional);
      if (p.kind == op::Kind::kInt)
        draft.assignment.numbers[p.name] =
            p.fallback.index() == 0 ? 1 : std::get<int64_t>(p.fallback);
      for (const op::Dim& d : p.dims) {
        if (d.kind == op::Dim::Kind::kLeading) draft.assignment.groups[d.name] = {draft.rows};
        if (d.kind == op::Dim::Kind::kNamed)
          draft.assignment.numbers.try_emplace(d.name, draft.size);
      }
    }
    for (const Constraint& c : constraints)
      if (!apply(*c.axis, c.value, draft)) return std::nullopt;
    for (const auto& [variable, list] : types_)
      draft.types.try_emplace(variable, list[draft.dtype % list.size()]);
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
    return call.ok() ? std::optional(*std::move(call)) : std::nullopt;
  }

  bool apply(const Axis& axis, const Value& value, Draft& to) const {
    switch (axis.kind) {
      case Axis::Kind::kInteger: return apply_integer(axis.field, value.i, to);
      case Axis::Kind::kTimes:
        return apply_integer(axis.field, value.i, to) && apply_integer(axis.other, 1, to);
      case Axis::Kind::kUnequal: {
        const int64_t same = to.assignment.numbers[field_name(program_, axis.field)];
        return apply_integer(axis.other, value.i == 0 ? same : std::max<int64_t>(same / 2, 1), to);
      }
      case Axis::Kind::kConstant: return true;
      case Axis::Kind::kNumber:
        to.scalars[s_.params[axis.arg].name] = {unordered(value.i)};
        return true;
      case Axis::Kind::kText: to.scalars[s_.params[axis.arg].name] = {value.s}; return true;
      case Axis::Kind::kLayout:
        std::fill_n(to.layouts.begin() + axis.arg, axis.count, static_cast<int>(value.i));
        return true;
      case Axis::Kind::kFlag:
        to.flags = value.i != 0 ? to.flags | axis.flag : to.flags & ~axis.flag;
        return true;
      case Axis::Kind::kDevice:
        to.device.type = static_cast<int32_t>(value.i >> 16);
        to.device.index = static_cast<int32_t>(value.i & 0xffff) - 1;
        return true;
      case Axis::Kind::kLabel:
      case Axis::Kind::kLabelInteger:
        if (value.there) to.labels[axis.label] = axis.is_text() ? value.s : std::to_string(value.i);
    }
    return true;
  }

  bool apply_integer(const op::Field& field, int64_t value, Draft& to) const {
    const uint8_t arg = field.sources[0].arg;
    const op::Param& p = s_.params[arg];
    switch (field.kind) {
      case op::Field::Kind::kDim:
      case op::Field::Kind::kProduct: return to.pin(field_name(program_, field), value);
      case op::Field::Kind::kScalar:
        if (p.kind == op::Kind::kInt) return to.pin(p.name, value);
        to.scalars[p.name] = {value != 0};
        if (p.kind == op::Kind::kEnum)
          to.scalars[p.name] = {op::Word{p.enumerators[static_cast<size_t>(value)]}};
        return true;
      case op::Field::Kind::kRank: {
        const auto trailing = static_cast<int64_t>(p.trailing());
        if (!p.has_leading()) return value == trailing;
        if (value < trailing || value > YARD_MAX_RANK) return false;
        auto& group = to.assignment.groups[p.dims[0].name];
        group.assign(static_cast<size_t>(value - trailing), 1);
        if (!group.empty()) group.back() = to.rows;
        return to.pinned.insert(p.dims[0].name).second;
      }
      case op::Field::Kind::kSize: return apply_size(p, value, to);
      case op::Field::Kind::kCount:
        to.counts[arg] = value;
        return value >= 0 && value <= kMostCount;
      case op::Field::Kind::kDType:
        if (!p.variable.empty()) to.types[p.variable] = static_cast<DType>(value);
        return true;
      default: return false;  // no condition names the others
    }
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
    t.shape = shape_of(p, from.assignment, [&](const op::Dim& d, std::vector<int64_t>& sizes) {
      if (d.kind == op::Dim::Kind::kAny) sizes = {from.size};
    });
    const int layout = from.layouts[param];
    if (layout != 0) t.strides = strides_of(t.shape, layout == 2 ? 2 : 1, layout == 1 ? kGap : 0);
    if (p.kind == op::Kind::kTensor) return op::SpecValue{std::move(t)};
    return op::SpecValue{
        std::vector<op::TensorSpec>(static_cast<size_t>(from.counts[param]), std::move(t))};
  }

  // Returns nullopt if the schema has a default.
  static std::optional<op::SpecValue> scalar(const op::Param& p, const Draft& from) {
    if (const auto it = from.scalars.find(p.name); it != from.scalars.end()) return it->second;
    if (p.kind == op::Kind::kInt) return op::SpecValue{from.assignment.numbers.at(p.name)};
    if (p.fallback.index() != 0) return std::nullopt;
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
  const size_t limit_;
  const SizeSolver solver_;
  const std::map<std::string, std::vector<DType>> types_;  // by variable
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
