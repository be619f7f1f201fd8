// SPDX-License-Identifier: Apache-2.0
#include "verify/generator.h"

#include "base/lists.h"
#include "verify/elements.h"

namespace yard::verification {
namespace {

constexpr size_t kAttempts = 200;

constexpr DType kAnyTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i8,
                               DType::i16, DType::i32, DType::i64,  DType::u8,  DType::boolean};

// Returns the values that a kernel's limits allow. If they allow none, returns all of them.
template <class T, class F>
std::vector<T> allowed(std::vector<T> all, const F& is_allowed) {
  std::vector<T> to;
  for (const T& v : all)
    if (is_allowed(v)) to.push_back(v);
  return to.empty() ? all : to;
}

op::SpecArg* find(op::CallSpec& spec, const std::string& name) {
  const auto it = std::ranges::find(spec.args, name, &op::SpecArg::name);
  return it != spec.args.end() ? &*it : nullptr;
}

// Makes a layout contiguous or aligned where the limits require it.
void comply(const CallLimits::Layout& limits, op::TensorSpec& t) {
  if (t.align < limits.align) t.align = YARD_MAX_ALIGN;
  if (t.strides.empty()) return;
  const bool plain = std::ranges::all_of(t.strides, [](int64_t s) { return s > 0; });
  if (limits.compact || (limits.inner_dense && t.strides.back() != 1) || (limits.plain && !plain))
    t.strides.clear();
}

// Adds the inferred outputs to the spec, so that they get layouts, too.
void add_inferred_outputs(const op::Program& program, const op::Call& call, op::CallSpec& spec) {
  for (const uint8_t i : program.outputs()) {
    const op::Param& p = program.schema().params[i];
    if (find(spec, p.name) != nullptr || call.args()[i].tag != YARD_TAG_TENSOR) continue;
    op::TensorSpec t = op::spec_of(*call.args()[i].u.tensor);
    t.device.reset();
    spec.args.push_back({p.name, {std::move(t)}});
  }
}

// Aligns the tensor only to an element.
void misalign(op::TensorSpec& t) {
  const size_t least = block_elements(t.dtype) > 1 ? 2 : element_size(t.dtype);  // of scales in f16
  t.align = std::min<uint32_t>(t.align, static_cast<uint32_t>(least));
}

}  // namespace

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, int64_t step, int64_t gap) {
  std::vector<int64_t> to(shape.size(), 1);
  auto next = static_cast<uint64_t>(step);  // an overflow is left to the schema check
  for (size_t k = shape.size(); k-- > 0;) {
    to[k] = static_cast<int64_t>(next);
    next *= static_cast<uint64_t>(std::max<int64_t>(shape[k], 1));
    if (k + 1 == shape.size()) next += static_cast<uint64_t>(gap);
  }
  return to;
}

std::map<std::string, std::vector<DType>> types_by_variable(const op::Schema& schema,
                                                            std::span<const DType> usual) {
  std::map<std::string, std::vector<DType>> to;
  for (const op::Param& p : schema.params)
    if (!p.variable.empty()) to[p.variable] = {usual.begin(), usual.end()};
  for (const op::Clause& c : schema.clauses)
    if (c.kind == op::Clause::Kind::kDTypes) to[c.left.name] = c.dtypes;
  return to;
}

bool is_inferred(const op::Program& program, const yard_op_t* op, const op::Param& p) {
  if (!p.is_output()) return false;
  if (program.needs_shape_function() && op != nullptr && op->infer != nullptr) return true;
  return p.is_required() &&
         program.inputs_determine(static_cast<uint32_t>(program.index_of(p.name)));
}

std::string field_name(const op::Program& program, const op::Field& field) {
  for (const std::string& name : program.field_names())
    if (program.field(name) == field) return name;
  return "";
}

CallLimits CallLimits::of(const op::Program& program, std::span<const op::Predicate> limits,
                          uint32_t flags) {
  CallLimits to;
  if ((flags & YARD_KERNEL_INFERENCE_ONLY) != 0) to.flags = YARD_CALL_INFERENCE;
  for (const op::Predicate& l : limits) {
    const op::Param& p = program.schema().params[l.field.sources[0].arg];
    CallLimits::Layout& layout = to.layouts[p.name];
    switch (l.field.kind) {
      case op::Field::Kind::kDType:
        if (p.variable.empty()) break;
        to.dtypes.try_emplace(p.variable, ~0ull).first->second &= static_cast<uint64_t>(l.test.a);
        break;
      case op::Field::Kind::kPresence:
        to.sizes.present[l.field.sources[0].arg] = l.test.a == 1;
        break;
      case op::Field::Kind::kCompact: layout.compact = true; break;
      case op::Field::Kind::kInnerDense: layout.inner_dense = true; break;
      case op::Field::Kind::kPlain: layout.plain = true; break;
      case op::Field::Kind::kAlignment:
        layout.align = std::max(
            layout.align, static_cast<uint32_t>(std::clamp<int64_t>(l.test.a, 1, YARD_MAX_ALIGN)));
        break;
      case op::Field::Kind::kRank:
        if (p.has_leading()) {
          const auto rank = [trailing = static_cast<int64_t>(p.trailing())](int64_t v) {
            return static_cast<int>(std::clamp<int64_t>(v, trailing, YARD_MAX_RANK) - trailing);
          };
          auto& [least, most] =
              to.sizes.ranks.try_emplace(p.dims[0].name, 0, YARD_MAX_RANK).first->second;
          least = std::max(least, rank(l.test.a));
          most = std::max(least, std::min(most, rank(l.test.b)));
        }
        break;
      default:
        const bool number = l.field.kind != op::Field::Kind::kScalar || p.kind == op::Kind::kInt;
        (number ? to.sizes.numbers : to.scalars)[field_name(program, l.field)].push_back(l.test);
    }
  }
  return to;
}

Generator::Generator(const op::Program& program, const yard_op_t* op, uint64_t seed,
                     int64_t max_elements, const CallLimits* limits)
    : program_(program),
      s_(program.schema()),
      op_(op),
      limits_(limits != nullptr ? *limits : CallLimits()),
      random_(seed),
      solver_(s_, max_elements, limits_.sizes),
      flags_({limits_.flags, limits_.flags | YARD_CALL_INFERENCE}) {
  using enum Layout;
  layouts_of_call_ = ShuffleBag<Layouts>(
      {Layouts::kContiguous, Layouts::kContiguous, Layouts::kContiguous, Layouts::kMisaligned,
       Layouts::kOneTensor, Layouts::kOneTensor, Layouts::kAllTensors, Layouts::kAllTensors});
  layouts_ = ShuffleBag<Layout>({kRowPadded, kRowPadded, kTransposed, kInnerStep, kBroadcast,
                                 kNegative, Layout::kMisaligned});
  std::vector<Contents> contents(all_contents().begin(), all_contents().end());
  contents.insert(contents.end(), 4, Contents::kNormal);
  contents_ = ShuffleBag<Contents>(std::move(contents));
  for (const op::Param& p : s_.params) {
    if (p.kind == op::Kind::kEnum || p.kind == op::Kind::kBool) {
      const auto& tests = limits_.scalars[p.name];
      std::vector<int> all(p.kind == op::Kind::kBool ? 2 : p.enumerators.size());
      std::iota(all.begin(), all.end(), 0);
      scalars_[p.name] = ShuffleBag<int>(allowed(std::move(all), [&](int v) {
        return std::ranges::all_of(tests, [&](const auto& t) { return t.holds(v); });
      }));
    }
    if (p.kind == op::Kind::kFloat) scalars_[p.name] = ShuffleBag<int>({0, 0, 0, 1, 2, 3});
  }
  for (const op::Clause& c : s_.clauses)
    if (c.kind == op::Clause::Kind::kMayAlias) aliases_[&c] = ShuffleBag<char>({0, 0, 1});
  for (const auto& [variable, list] : types_by_variable(s_, kAnyTypes))
    types_[variable] = ShuffleBag<DType>(
        allowed(list, [mask = limits_.dtypes.try_emplace(variable, ~0ull).first->second](DType t) {
          return (mask & YARD_DTYPE_BIT(static_cast<int>(t))) != 0;
        }));
  if (limits == nullptr) return;
  std::vector<SizePoint> points = solver_.points();
  point_count_ = points.size();
  points_ = ShuffleBag<SizePoint>(std::move(points));
  takes_point_ = ShuffleBag<char>({0, 1, 1});
}

std::optional<Case> Generator::next() {
  const size_t points = point_count_ > 0 && takes_point_.next(random_) != 0 ? point_count_ : 0;
  for (size_t i = 0; i < points + kAttempts; ++i) {
    const bool at_point = i < points;
    for (auto& [variable, bag] : types_) chosen_types_[variable] = bag.next(random_);
    const SizePoint point = at_point ? points_.next(random_) : SizePoint();
    const auto assignment = solver_.next(at_point ? &point : nullptr, random_, chosen_types_);
    auto call = assignment ? attempt(*assignment, !at_point) : std::nullopt;
    if (!call) continue;
    const Contents contents = at_point ? Contents::kNormal : contents_.next(random_);
    return Case{*std::move(call), contents, random_.bits()};
  }
  return std::nullopt;
}

void Generator::fit_blocks(Assignment& assignment) {
  std::set<std::string> fitted;
  for (const op::Param& p : s_.params) {
    if (p.variable.empty() && p.dtype == DType::invalid) continue;
    const int64_t unit =
        block_elements(p.variable.empty() ? p.dtype : chosen_types_.at(p.variable));
    if (unit == 1 || p.dims.empty() || p.dims.back().kind != op::Dim::Kind::kNamed) continue;
    int64_t& size = assignment.numbers[p.dims.back().name];
    if (size % unit != 0) size += unit - size % unit;
    fitted.insert(p.dims.back().name);
  }
  if (!fitted.empty()) solver_.repair(assignment, fitted, random_);
}

std::optional<op::Call> Generator::attempt(Assignment assignment, bool varied) {
  fit_blocks(assignment);
  op::CallSpec spec;
  spec.op = s_.name;
  spec.flags = flags_.next(random_);
  for (size_t i = 0; i < s_.params.size(); ++i) {
    const op::Param& p = s_.params[i];
    if (!assignment.present[i]) continue;
    auto value = p.is_tensor() ? tensors(p, assignment) : scalar(p, assignment);
    if (value) spec.args.push_back({p.name, *std::move(value)});
  }
  auto bare = op::Call::from_spec(program_, spec, op_);
  if (!bare.ok()) return std::nullopt;
  if (!varied) return *std::move(bare);
  add_inferred_outputs(program_, *bare, spec);
  lay_out(spec);
  alias(spec);
  auto call = op::Call::from_spec(program_, spec, op_);
  return call.ok() ? *std::move(call) : *std::move(bare);
}

// Makes a dimension or leading group smaller. A group gets fewer dimensions, or some of size one.
void Generator::broadcast(std::vector<int64_t>& sizes, bool group) {
  if (!group) return sizes.assign(1, 1);
  if (sizes.empty()) return;
  sizes.erase(sizes.begin(),
              sizes.begin() + static_cast<std::ptrdiff_t>(random_.below(sizes.size())));
  for (int64_t& n : sizes) n = random_.below(2) == 0 ? 1 : n;
}

std::optional<op::SpecValue> Generator::tensors(const op::Param& p, const Assignment& assignment) {
  if (is_inferred(program_, op_, p)) return std::nullopt;  // see add_inferred_outputs()
  const auto one = [&] {
    op::TensorSpec t;
    t.dtype = p.variable.empty() ? p.dtype : chosen_types_.at(p.variable);
    t.shape = shape_of(p, assignment, [&](const op::Dim& d, std::vector<int64_t>& sizes) {
      if (d.kind == op::Dim::Kind::kAny) sizes[0] = solver_.size(random_);
      if (d.broadcast && random_.below(3) == 0) broadcast(sizes, d.kind == op::Dim::Kind::kLeading);
    });
    return t;
  };
  if (p.kind == op::Kind::kTensor) return op::SpecValue{one()};
  std::vector<op::TensorSpec> list(1 + random_.below(3));
  for (op::TensorSpec& t : list) t = one();
  return op::SpecValue{std::move(list)};
}

std::optional<op::SpecValue> Generator::scalar(const op::Param& p, const Assignment& assignment) {
  switch (p.kind) {
    case op::Kind::kInt: return op::SpecValue{assignment.numbers.at(p.name)};
    case op::Kind::kBool: return op::SpecValue{scalars_[p.name].next(random_) != 0};
    case op::Kind::kEnum:
      return op::SpecValue{
          op::Word{p.enumerators[static_cast<size_t>(scalars_[p.name].next(random_))]}};
    case op::Kind::kFloat: {
      const double usual = p.fallback.index() == 0 ? 1.0 : std::get<double>(p.fallback);
      const double values[] = {usual, 0.5, 1.0, usual * 8};
      double value = values[scalars_[p.name].next(random_)];
      for (const op::Clause& c : s_.clauses) {
        if (c.kind != op::Clause::Kind::kFloat || c.left.name != p.name) continue;
        if (op::compares(value, c.compare, c.bound)) continue;
        const bool lower = c.compare == op::Compare::kLt;
        const bool other = c.compare == op::Compare::kGt || c.compare == op::Compare::kNe;
        value = c.bound + (lower ? -0.5 : other ? 0.5 : 0);
      }
      return op::SpecValue{value};
    }
    case op::Kind::kString:
      return op::SpecValue{p.fallback.index() == 0 ? "" : std::get<std::string>(p.fallback)};
    default: return std::nullopt;
  }
}

void Generator::lay_out(op::CallSpec& spec) {
  size_t count = 0, at = 0;
  for (op::SpecArg& a : spec.args) count += op::tensors_of(a.value).size();
  if (count == 0) return;
  const Layouts layouts = layouts_of_call_.next(random_);
  const size_t one = layouts == Layouts::kOneTensor ? random_.below(count) : count;
  for (op::SpecArg& a : spec.args)
    for (op::TensorSpec& t : op::tensors_of(a.value)) {
      if (layouts == Layouts::kMisaligned) misalign(t);
      if (layouts == Layouts::kAllTensors || at++ == one) lay_out(t, s_.find(a.name)->is_written());
      comply(limits_.layouts[a.name], t);
    }
}

void Generator::lay_out(op::TensorSpec& t, bool written) {
  Layout form = layouts_.next(random_);
  if (form == Layout::kBroadcast && written) form = Layout::kRowPadded;  // would overlap itself
  if (t.shape.empty() && form != Layout::kMisaligned) return;
  const size_t any = t.shape.empty() ? 0 : random_.below(t.shape.size());
  const int64_t unit = block_elements(t.dtype);
  if (unit > 1) form = form == Layout::kMisaligned ? form : Layout::kRowPadded;
  switch (form) {
    case Layout::kRowPadded:
      t.strides = strides_of(t.shape, 1, unit * (1 + static_cast<int64_t>(random_.below(16))));
      break;
    case Layout::kTransposed: {
      std::vector<int64_t> shape = t.shape;
      const size_t swapped = shape.size() > 1 ? shape.size() - 2 : 0;
      std::swap(shape.back(), shape[swapped]);
      t.strides = strides_of(shape, 1, 0);
      std::swap(t.strides.back(), t.strides[swapped]);
      break;
    }
    case Layout::kInnerStep:
      t.strides = strides_of(t.shape, 2 + static_cast<int64_t>(random_.below(2)), 0);
      break;
    case Layout::kBroadcast:
    case Layout::kNegative:
      t.strides = strides_of(t.shape, 1, 0);
      t.strides[any] = form == Layout::kNegative ? -t.strides[any] : 0;
      break;
    case Layout::kMisaligned: misalign(t); break;
  }
  if (random_.below(4) == 0) misalign(t);
}

void Generator::alias(op::CallSpec& spec) {
  for (auto& [clause, bag] : aliases_) {
    if (bag.next(random_) == 0) continue;
    op::SpecArg* out = find(spec, clause->left.name);
    const op::SpecArg* in = find(spec, clause->right.name);
    if (out == nullptr || in == nullptr) continue;
    const auto* from = std::get_if<op::TensorSpec>(&in->value.v);
    const auto* to = std::get_if<op::TensorSpec>(&out->value.v);
    if (from != nullptr && to != nullptr && from->dtype == to->dtype && from->shape == to->shape &&
        !base::contains(from->strides, 0))
      out->value.v = op::SameAs{in->name};
  }
}

}  // namespace yard::verification
