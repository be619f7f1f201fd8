// SPDX-License-Identifier: Apache-2.0
#include "tune/call_builder.h"

#include <algorithm>
#include <limits>

namespace yard::tune {
namespace {

constexpr int64_t kMostCount = 64;  // tensors in a list
constexpr uint64_t kGap = 8;        // elements between rows

std::vector<DType> usual_types() {
  return {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::i8};
}

void lay_out(op::TensorSpec& t, int layout) {
  if (layout == 0 || t.shape.empty()) return;
  uint64_t step = layout == 2 ? 2 : 1;  // unsigned: an overflow is left to the schema check
  t.strides.assign(t.shape.size(), 1);
  for (size_t i = t.shape.size(); i-- > 0;) {
    t.strides[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(std::max<int64_t>(t.shape[i], 1));
    if (i + 1 == t.shape.size() && layout == 1) step += kGap;
  }
}

}  // namespace

struct CallBuilder::Draft {
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
    if (const auto g = assignment.groups.find(name); g != assignment.groups.end()) {
      if (value < 0) return false;
      g->second.assign(std::max<size_t>(g->second.size(), 1), 1);
      g->second.back() = value;
    } else {
      assignment.numbers[name] = value;
    }
    return pinned.insert(name).second;
  }
};

CallBuilder::CallBuilder(const op::Program& program, const yard_op_t* op)
    : program_(program),
      s_(program.schema()),
      op_(op),
      solver_(s_, std::numeric_limits<int64_t>::max()) {
  for (const op::Param& p : s_.params)
    if (!p.variable.empty()) types_.try_emplace(p.variable, usual_types());
  for (const op::Clause& c : s_.clauses)
    if (c.kind == op::Clause::Kind::kDTypes) types_[c.left.name] = c.dtypes;
}

std::vector<DType> CallBuilder::dtypes(size_t param) const {
  const op::Param& p = s_.params[param];
  return p.variable.empty() ? std::vector<DType>{p.dtype} : types_.at(p.variable);
}

size_t CallBuilder::most_dtypes() const {
  size_t most = 1;
  for (const auto& [name, list] : types_) most = std::max(most, list.size());
  return most;
}

// Puts all elements into the first dimension that can have that size.
bool CallBuilder::apply_size(const op::Param& param, int64_t value, Draft& to) const {
  bool placed = false;
  for (const op::Dim& d : param.dims) {
    const bool free = d.kind == op::Dim::Kind::kLeading || d.kind == op::Dim::Kind::kNamed;
    if (!free) continue;
    const int64_t each = d.kind == op::Dim::Kind::kNamed ? d.number : 1;
    const bool here = !placed && value % each == 0;
    if (!to.pin(d.name, here ? value / each : 1)) return false;
    placed |= here;
  }
  return placed;
}

bool CallBuilder::apply_integer(const op::Field& field, const std::string& name, int64_t value,
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
    case op::Field::Kind::kCount: to.counts[arg] = value; return value >= 0 && value <= kMostCount;
    case op::Field::Kind::kDType:
      if (!p.variable.empty()) to.types[p.variable] = static_cast<DType>(value);
      return true;
    default: break;  // no condition names the others
  }
  return false;
}

bool CallBuilder::apply(const FieldConstraint& constraint, Draft& to) const {
  const policy::Axis& axis = constraint.field->axis;
  const auto* i = std::get_if<int64_t>(&constraint.value);
  const auto* f = std::get_if<double>(&constraint.value);
  const auto* text = std::get_if<std::string>(&constraint.value);
  const std::string& argument = s_.params.empty() ? s_.name : s_.params[axis.arg].name;
  using Kind = policy::Axis::Kind;
  switch (axis.kind) {
    case Kind::kInteger:
      return i != nullptr && apply_integer(axis.field, constraint.field->name, *i, to);
    case Kind::kNumber:
      if (f != nullptr) to.scalars[argument] = {*f};
      return f != nullptr;
    case Kind::kText:
      if (text != nullptr) to.scalars[argument] = {*text};
      return text != nullptr;
    case Kind::kLayout: {
      if (i == nullptr) return false;
      const bool flag = constraint.field->type == policy::FieldType::kSwitch;
      const int layout = flag ? (*i != 0 ? 0 : 1) : static_cast<int>(*i);
      std::fill_n(to.layouts.begin() + axis.arg, axis.count, layout);
      return true;
    }
    case Kind::kFlag:
      if (i == nullptr) return false;
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

std::optional<op::SpecValue> CallBuilder::tensors(size_t param, const Draft& from) const {
  const op::Param& p = s_.params[param];
  // Outputs are inferred, where inputs or the shape function determine them.
  const bool has_function =
      program_.needs_shape_function() && op_ != nullptr && op_->infer != nullptr;
  if (p.is_output() && p.kind == op::Kind::kTensor &&
      (has_function || (!p.optional && program_.inputs_determine(static_cast<uint32_t>(param)))))
    return std::nullopt;
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

std::optional<op::SpecValue> CallBuilder::scalar(const op::Param& p, const Draft& from) const {
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

std::optional<op::Call> CallBuilder::call(const CallDefaults& defaults,
                                          std::span<const FieldConstraint> constraints) const {
  Draft draft;
  draft.defaults = defaults, draft.flags = defaults.flags;
  draft.layouts.assign(s_.params.size(), defaults.layout);
  draft.counts.assign(s_.params.size(), 2);
  for (const op::Param& p : s_.params) {
    draft.assignment.present.push_back(defaults.optionals || !p.optional);
    const auto* given = std::get_if<int64_t>(&p.fallback);
    if (p.kind == op::Kind::kInt) draft.assignment.numbers[p.name] = given != nullptr ? *given : 1;
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

}  // namespace yard::tune
