// SPDX-License-Identifier: Apache-2.0
// Making calls: see generator.h.
#include "tune/generator.h"

#include <algorithm>
#include <numeric>

namespace yard::tune {
namespace {

constexpr int kAttempts = 200;

std::vector<DType> any_types() {
  return {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i8,
          DType::i16, DType::i32, DType::i64,  DType::u8,  DType::boolean};
}

std::vector<int> count_to(size_t n) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

op::SpecArg* find(op::CallSpec& spec, const std::string& name) {
  for (op::SpecArg& a : spec.args)
    if (a.name == name) return &a;
  return nullptr;
}

}  // namespace

Generator::Generator(const op::Program& program, const yard_op_t* op, uint64_t seed,
                     int64_t max_elements)
    : program_(program),
      s_(program.schema()),
      op_(op),
      random_(seed),
      sizes_(s_, max_elements),
      flags_({0, YARD_CALL_INFERENCE}) {
  std::vector<Contents> contents(all_contents().begin(), all_contents().end());
  contents.insert(contents.end(), 4, Contents::kNormal);
  contents_ = Deck<Contents>(std::move(contents));
  for (const op::Param& p : s_.params) {
    if (!p.variable.empty()) types_.try_emplace(p.variable, any_types());
    if (p.kind == op::Kind::kEnum) scalars_[p.name] = Deck<int>(count_to(p.enumerators.size()));
    if (p.kind == op::Kind::kBool) scalars_[p.name] = Deck<int>({0, 1});
    if (p.kind == op::Kind::kFloat) scalars_[p.name] = Deck<int>({0, 0, 0, 1, 2, 3});
  }
  for (const op::Clause& c : s_.clauses) {
    if (c.kind == op::Clause::Kind::kDTypes) types_[c.left.name] = Deck<DType>(c.dtypes);
    if (c.kind == op::Clause::Kind::kMayAlias) aliases_[&c] = Deck<char>({0, 0, 1});
  }
}

std::optional<Case> Generator::next() {
  for (int i = 0; i < kAttempts; ++i) {
    auto call = attempt();
    if (call) return Case{*std::move(call), contents_.next(random_), random_.bits()};
  }
  return std::nullopt;
}

std::optional<op::Call> Generator::attempt() {
  const Draft draft = sizes_.draw(random_);
  choose_types();
  op::CallSpec spec;
  spec.op = s_.name;
  spec.flags = flags_.next(random_);
  for (size_t i = 0; i < s_.params.size(); ++i) {
    const op::Param& p = s_.params[i];
    if (!draft.present[i]) continue;
    auto value = p.is_tensor() ? tensors(p, draft) : scalar(p, draft);
    if (value) spec.args.push_back({p.name, *std::move(value)});
  }
  auto bare = op::Call::from_spec(program_, spec, op_);
  if (!bare.ok()) return std::nullopt;
  complete(spec, *bare);
  lay_out(spec);
  alias(spec);
  auto call = op::Call::from_spec(program_, spec, op_);
  if (!call.ok()) return *std::move(bare);
  return *std::move(call);
}

void Generator::choose_types() {
  for (auto& [variable, deck] : types_) chosen_types_[variable] = deck.next(random_);
}

std::vector<int64_t> Generator::shape(const op::Param& p, const Draft& draft) {
  std::vector<int64_t> to;
  for (const op::Dim& d : p.dims) {
    const bool one = d.broadcast && random_.below(3) == 0;
    switch (d.kind) {
      case op::Dim::Kind::kAny: to.push_back(sizes_.any(random_)); break;
      case op::Dim::Kind::kConstant: to.push_back(d.number); break;
      case op::Dim::Kind::kNamed:
        to.push_back(one ? 1 : d.number * draft.numbers.at(d.name));
        break;
      case op::Dim::Kind::kLeading: {
        std::vector<int64_t> group = draft.groups.at(d.name);
        if (one && !group.empty()) {
          // Fewer dimensions, or ones among them.
          group.erase(group.begin(),
                      group.begin() + static_cast<std::ptrdiff_t>(random_.below(group.size())));
          for (int64_t& n : group) n = random_.below(2) == 0 ? 1 : n;
        }
        to.insert(to.end(), group.begin(), group.end());
      }
    }
  }
  return to;
}

std::optional<op::SpecValue> Generator::tensors(const op::Param& p, const Draft& draft) {
  if (p.is_output() && program_.needs_shape_function()) return std::nullopt;
  // Required outputs are inferred: complete() writes them out.
  if (p.is_output() && p.kind == op::Kind::kTensor && !p.optional) return std::nullopt;
  const auto one = [&] {
    op::TensorSpec t;
    t.dtype = p.variable.empty() ? p.dtype : chosen_types_.at(p.variable);
    t.shape = shape(p, draft);
    return t;
  };
  if (p.kind == op::Kind::kTensor) return op::SpecValue{one()};
  std::vector<op::TensorSpec> list(1 + random_.below(3));
  for (op::TensorSpec& t : list) t = one();
  return op::SpecValue{std::move(list)};
}

std::optional<op::SpecValue> Generator::scalar(const op::Param& p, const Draft& draft) {
  switch (p.kind) {
    case op::Kind::kInt: return op::SpecValue{draft.numbers.at(p.name)};
    case op::Kind::kBool: return op::SpecValue{scalars_[p.name].next(random_) != 0};
    case op::Kind::kEnum:
      return op::SpecValue{
          op::Word{p.enumerators[static_cast<size_t>(scalars_[p.name].next(random_))]}};
    case op::Kind::kFloat: {
      const auto* given = std::get_if<double>(&p.fallback);
      const double usual = given != nullptr ? *given : 1.0;
      switch (scalars_[p.name].next(random_)) {
        case 1: return op::SpecValue{0.5};
        case 2: return op::SpecValue{1.0};
        case 3: return op::SpecValue{usual * 8};
        default: return op::SpecValue{usual};
      }
    }
    case op::Kind::kString: {
      const auto* given = std::get_if<std::string>(&p.fallback);
      return op::SpecValue{given != nullptr ? *given : std::string()};
    }
    default: return std::nullopt;
  }
}

void Generator::complete(op::CallSpec& spec, const op::Call& call) const {
  for (const uint8_t i : program_.outputs()) {
    const op::Param& p = s_.params[i];
    if (find(spec, p.name) != nullptr || call.args()[i].tag != YARD_TAG_TENSOR) continue;
    op::TensorSpec t = op::spec_of(*call.args()[i].u.tensor);
    t.device.reset();
    spec.args.push_back({p.name, {std::move(t)}});
  }
}

void Generator::lay_out(op::CallSpec& spec) {
  std::vector<Layouts::Item> items;
  for (op::SpecArg& a : spec.args) {
    const bool written = s_.params[static_cast<size_t>(s_.index_of(a.name))].is_written();
    if (auto* t = std::get_if<op::TensorSpec>(&a.value.v)) items.push_back({t, written});
    if (auto* list = std::get_if<std::vector<op::TensorSpec>>(&a.value.v))
      for (op::TensorSpec& t : *list) items.push_back({&t, written});
  }
  layouts_.deal(items, random_);
}

void Generator::alias(op::CallSpec& spec) {
  for (auto& [clause, deck] : aliases_) {
    if (deck.next(random_) == 0) continue;
    op::SpecArg* out = find(spec, clause->left.name);
    const op::SpecArg* in = find(spec, clause->right.name);
    if (out == nullptr || in == nullptr) continue;
    const auto* from = std::get_if<op::TensorSpec>(&in->value.v);
    const auto* to = std::get_if<op::TensorSpec>(&out->value.v);
    if (from == nullptr || to == nullptr || from->dtype != to->dtype || from->shape != to->shape)
      continue;
    if (std::count(from->strides.begin(), from->strides.end(), 0) > 0) continue;
    out->value.v = op::SameAs{in->name};
  }
}

}  // namespace yard::tune
