// SPDX-License-Identifier: Apache-2.0
// From a schema to a Program: the steps, the lead tensor, and the lanes that cover some of the steps.
#include <algorithm>
#include <map>
#include <set>

#include "base/lists.h"
#include "op/numbers.h"
#include "op/program.h"
#include "op/steps.h"

namespace yard::op {
namespace {

constexpr uint32_t kDTypeBits = static_cast<uint32_t>(YARD_FACTS_DTYPE);
constexpr uint32_t kDeviceBits = static_cast<uint32_t>(YARD_FACTS_DEVICE);
constexpr uint32_t kRankBits = static_cast<uint32_t>(YARD_FACTS_RANK);
constexpr uint32_t kValidBit = static_cast<uint32_t>(YARD_FACTS_VALID);

// By Kind: the tag of a value, and its letter in a signature.
constexpr std::pair<uint8_t, char> kTags[] = {
    {YARD_TAG_TENSOR, 't'}, {YARD_TAG_LIST, 'v'},   {YARD_TAG_INT, 'i'}, {YARD_TAG_FLOAT, 'f'},
    {YARD_TAG_BOOL, 'b'},   {YARD_TAG_STRING, 'v'}, {YARD_TAG_INT, 'i'}};
static_assert(std::size(kTags) == static_cast<size_t>(Kind::kEnum) + 1);

bool is_required(const Param& p) { return p.kind == Kind::kTensor && !p.optional; }

// How many tensors of a parameter use a name: those of a list must agree with each other.
size_t uses_in(const Param& p) { return p.kind == Kind::kTensorList ? 2 : 1; }

bool same_dim(const Dim& a, const Dim& b) {
  return a.kind == b.kind && a.kind != Dim::Kind::kAny && !a.broadcast && !b.broadcast &&
         a.name == b.name && a.number == b.number;
}

// The bits of facts that a parameter's type fixes.
void fixed_facts(const Param& p, uint32_t& mask, uint32_t& value) {
  mask = value = 0;
  if (p.variable.empty()) {
    mask |= kDTypeBits;
    value |= static_cast<uint32_t>(p.dtype);
  }
  if (!p.has_leading()) {
    mask |= kRankBits;
    value |= static_cast<uint32_t>(p.dims.size()) << YARD_FACTS_RANK_SHIFT;
  }
}

}  // namespace

// Compiles one schema that has been checked.
class Compiler {
 public:
  explicit Compiler(Schema s) : s_(std::move(s)) {}

  Program run() {
    for (const Param& p : s_.params) {
      const auto& [tag, letter] = kTags[static_cast<size_t>(p.kind)];
      program_.tags_[program_.arg_count_++] =
          static_cast<uint8_t>(tag | (p.optional ? Program::kOptional : 0));
      cold_.signature += letter;
    }
    outputs();
    count_uses();
    choose_lead();
    make_lanes();
    make_steps();
    program_.form_ = form();
    cold_.fields = make_fields(s_);
    cold_.schema = std::move(s_);
    program_.has_rest_ = !cold_.rest.empty();
    program_.cold_ = std::make_shared<const ProgramCold>(std::move(cold_));
    return std::move(program_);
  }

 private:
  using Op = Step::Op;

  const Param& param(size_t i) const { return s_.params[i]; }
  size_t count() const { return s_.params.size(); }
  bool is_lead(size_t i) const { return static_cast<int>(i) == lead_; }
  bool in_lane(size_t i) const { return lead_ >= 0 && is_required(param(i)); }
  uint8_t index_of(const std::string& name) const {
    return static_cast<uint8_t>(s_.index_of(name));
  }
  bool is_int(const std::string& name) const {
    const int i = s_.index_of(name);
    return i >= 0 && param(static_cast<size_t>(i)).kind == Kind::kInt;
  }
  // Whether more than one tensor, a clause or an int parameter uses a name.
  bool is_shared(const std::string& name) const {
    return uses_.at(name) > 1 || asked_.count(name) != 0 || is_int(name);
  }

  void outputs();
  bool may_alias(size_t output, size_t input) const;
  void count_uses();

  void choose_lead();
  void make_lanes();
  Program::Lane make_lane(size_t i);
  // Whether a lane can express how the dimensions of p relate to those of the lead.
  static bool relate(const Param& lead, const Param& p, Program::Lane& lane);
  Program::Form form() const;

  uint8_t reg(const std::string& name) {
    const auto [it, fresh] = regs_.try_emplace(name, static_cast<uint8_t>(regs_.size()));
    if (fresh) cold_.names.push_back(name);
    return it->second;
  }
  // `covered`: holds for every call that the lanes accept.
  void emit(const Step& s, bool covered) {
    cold_.steps.push_back(s);
    if (!covered) cold_.rest.push_back(s);
  }
  // Makes the steps that `f` emits a group for the tensors of a parameter.
  template <class F>
  void group(size_t arg, const F& f) {
    const size_t step = cold_.steps.size(), rest = cold_.rest.size();
    emit({.op = Op::kTensors, .arg = static_cast<uint8_t>(arg)}, false);
    f();
    end_group(cold_.steps, step);
    end_group(cold_.rest, rest);
  }
  static void end_group(std::vector<Step>& steps, size_t first) {
    steps[first].value = steps.size() - first - 1;
    if (steps[first].value == 0) steps.pop_back();
  }

  void make_steps();
  void type(size_t i);
  void dims(size_t i);
  void broadcasts(size_t i);
  void products();
  void clause(size_t k);
  void overlaps(size_t w);
  // Whether lanes that compare a dimension of the lead do not check all of it.
  bool lead_dim_special(const Param& p, const Dim& d) const;
  // Names of dimensions whose value `rest` needs.
  std::set<std::string> names_needed() const;

  Schema s_;
  Program program_;
  ProgramCold cold_;
  int lead_ = -1;
  std::string lead_variable_;
  bool lead_variable_needed_ = false;  // by a parameter that has no lane, or by a clause
  std::vector<bool> covered_;          // parameters whose dimensions lanes check
  std::map<std::string, uint8_t> regs_;
  std::map<std::string, size_t> uses_;  // of dimensions and dtype variables, by tensors
  std::set<std::string> asked_;         // names in clauses
  std::set<std::string> needed_;
};

void Compiler::outputs() {
  for (size_t i = 0; i < count(); ++i) {
    if (param(i).is_output()) cold_.outputs.push_back(static_cast<uint8_t>(i));
    if (param(i).access == Access::kReadWrite) cold_.has_inout = true;
  }
  for (const Clause& c : s_.clauses)
    if (c.kind == Clause::Kind::kMayAlias)
      cold_.aliases.emplace_back(s_.index_of(c.left.name), s_.index_of(c.right.name));
}

bool Compiler::may_alias(size_t output, size_t input) const {
  return base::contains(cold_.aliases, std::pair<uint8_t, uint8_t>(output, input));
}

void Compiler::count_uses() {
  for (const Param& p : s_.params) {
    if (!p.variable.empty()) uses_[p.variable] += uses_in(p);
    for (const Dim& d : p.dims)
      if (!d.name.empty()) uses_[d.name] += uses_in(p);
  }
  for (const Clause& c : s_.clauses)
    for (const Term* t : {&c.left, &c.right})
      if (!t->name.empty() && c.kind != Clause::Kind::kElements) asked_.insert(t->name);
}

void Compiler::choose_lead() {
  for (size_t i = 0; i < count(); ++i) {
    if (!is_required(param(i)) || !param(i).is_written()) continue;
    if (lead_ < 0 || (param(i).is_output() && !param(static_cast<size_t>(lead_)).is_output()))
      lead_ = static_cast<int>(i);
  }
  if (lead_ >= 0) lead_variable_ = param(static_cast<size_t>(lead_)).variable;
  for (size_t i = 0; i < count(); ++i)
    if (!lead_variable_.empty() && param(i).variable == lead_variable_ && !in_lane(i))
      lead_variable_needed_ = true;
  for (const Clause& c : s_.clauses)
    if (c.kind == Clause::Kind::kIffDTypes && c.right.name == lead_variable_)
      lead_variable_needed_ = true;
}

bool Compiler::relate(const Param& lead, const Param& p, Program::Lane& lane) {
  const size_t n = p.dims.size();
  const bool whole = p.has_leading();
  if (whole ? n != lead.dims.size() : n > lead.trailing()) return false;
  if (n == 0) return true;
  const Dim* a = lead.dims.data() + (lead.dims.size() - n);
  const Dim* b = p.dims.data();
  for (size_t i = 0; i + 1 < n; ++i)
    if (!same_dim(a[i], b[i])) return false;
  if (!same_dim(a[n - 1], b[n - 1])) {
    Dim unscaled = b[n - 1];
    unscaled.number = 1;
    if (b[n - 1].kind != Dim::Kind::kNamed || b[n - 1].number > 255 ||
        !same_dim(a[n - 1], unscaled))
      return false;
    lane.scale = static_cast<uint8_t>(b[n - 1].number);
  }
  lane.dims = whole ? Program::kAllDims : static_cast<uint8_t>(n);
  if (whole) lane.same |= kRankBits;
  return true;
}

void Compiler::make_lanes() {
  covered_.assign(count(), false);
  if (lead_ < 0) return;
  const auto lead = static_cast<size_t>(lead_);
  std::vector<Program::Lane> lanes = {make_lane(lead)};
  // The quick check accepts plain leads only: they never overlap themselves.
  lanes[0].fixed |= static_cast<uint32_t>(YARD_FACTS_PLAIN);
  lanes[0].want |= static_cast<uint32_t>(YARD_FACTS_PLAIN);
  program_.min_rank_ = static_cast<uint8_t>(param(lead).trailing());
  for (size_t i = 0; i < count(); ++i)
    if (i != lead && is_required(param(i))) lanes.push_back(make_lane(i));
  std::stable_sort(lanes.begin() + 1, lanes.end(),
                   [](const auto& a, const auto& b) { return a.kind < b.kind; });
  program_.same_end_ = program_.last_end_ = 1;
  for (const Program::Lane& lane : lanes) {
    program_.lane_args_[program_.lane_count_] = lane.arg;
    program_.lanes_[program_.lane_count_++] = lane;
    if (lane.arg == lead) continue;
    if (lane.kind == Program::Lane::Kind::kSame) program_.same_end_ = program_.lane_count_;
    if (lane.kind != Program::Lane::Kind::kOther) program_.last_end_ = program_.lane_count_;
  }
}

Program::Lane Compiler::make_lane(size_t i) {
  const Param& lead = param(static_cast<size_t>(lead_));
  const Param& p = param(i);
  Program::Lane lane;
  lane.arg = static_cast<uint8_t>(i);
  fixed_facts(p, lane.fixed, lane.want);
  lane.fixed |= kValidBit;
  lane.want |= kValidBit;
  if (is_lead(i)) return lane;
  lane.same = kDeviceBits;
  const bool same_dtype = p.variable.empty() ? p.dtype == lead.dtype : p.variable == lead.variable;
  if (same_dtype && !p.variable.empty()) lane.same |= kDTypeBits;
  lane.may_alias = may_alias(static_cast<size_t>(lead_), i);
  covered_[i] = relate(lead, p, lane);
  if (!covered_[i] || !same_dtype || lane.scale != 1) return lane;
  if (p.dims.size() == lead.dims.size())
    lane.kind = Program::Lane::Kind::kSame;
  else if (p.dims.size() == 1 && !p.has_leading())
    lane.kind = Program::Lane::Kind::kLast;
  return lane;
}

Program::Form Compiler::form() const {
  const Program& p = program_;
  const uint32_t free = static_cast<uint32_t>(YARD_FACTS_VALID | YARD_FACTS_PLAIN);
  for (uint8_t i = 0; i < p.lane_count_; ++i)
    if (p.lane_args_[i] != i) return Program::Form::kAny;
  if (p.lane_count_ != 3 || p.last_end_ != 3 || p.lanes_[0].fixed != free || p.min_rank_ != 1 ||
      p.dtypes_ != ~0ull)
    return Program::Form::kAny;
  return p.same_end_ == 2   ? Program::Form::kSameLast
         : p.same_end_ == 3 ? Program::Form::kSameSame
                            : Program::Form::kAny;
}

void Compiler::make_steps() {
  needed_ = names_needed();
  for (size_t i = 0; i < count(); ++i)
    if (param(i).kind == Kind::kEnum)
      emit({.op = Op::kEnum, .arg = static_cast<uint8_t>(i), .value = param(i).enumerators.size()},
           false);
  for (size_t i = 0; i < count(); ++i)
    if (param(i).is_tensor())
      emit({.op = Op::kReadable, .arg = static_cast<uint8_t>(i)}, in_lane(i));
  for (size_t i = 0; i < count(); ++i)
    if (const Param& p = param(i);
        p.kind == Kind::kInt && (uses_.count(p.name) != 0 || asked_.count(p.name) != 0))
      emit({.op = Op::kInt, .arg = static_cast<uint8_t>(i), .reg = reg(p.name)}, false);
  // Messages compare outputs with inputs, and optional tensors with required ones.
  for (const int pass : {0, 1, 2, 3})
    for (size_t i = 0; i < count(); ++i)
      if (param(i).is_tensor() &&
          (param(i).is_output() ? 2 : 0) + (is_required(param(i)) ? 0 : 1) == pass)
        group(i, [&] {
          type(i);
          dims(i);
        });
  for (size_t i = 0; i < count(); ++i)
    if (param(i).is_tensor()) group(i, [&] { broadcasts(i); });
  products();
  for (size_t k = 0; k < s_.clauses.size(); ++k) clause(k);
  for (size_t i = 0; i < count(); ++i)
    if (param(i).is_tensor() && param(i).is_written()) overlaps(i);
}

void Compiler::type(size_t i) {
  const Param& p = param(i);
  Step whole{.op = Op::kType, .arg = static_cast<uint8_t>(i)};
  uint32_t mask, value;
  fixed_facts(p, mask, value);
  whole.mask = mask;
  whole.value = value;
  if (p.has_leading()) whole.axis = static_cast<uint8_t>(p.trailing());
  if (!p.variable.empty() && is_shared(p.variable)) whole.reg = reg(p.variable);
  cold_.steps.push_back(whole);

  Step rest = whole;
  if (in_lane(i)) {
    rest.mask = rest.value = 0;
    if (is_lead(i) || covered_[i]) rest.axis = 0;
    // Lanes compare the lead's variable with each other; what has no lane needs its value.
    if (p.variable == lead_variable_ && !(lead_variable_needed_ && is_lead(i)))
      rest.reg = Step::kNoReg;
  }
  if (rest.mask != 0 || rest.axis != 0 || rest.reg != Step::kNoReg) cold_.rest.push_back(rest);
}

bool Compiler::lead_dim_special(const Param& p, const Dim& d) const {
  if (d.kind == Dim::Kind::kNamed && (d.number != 1 || is_int(d.name))) return true;
  size_t here = 0;
  for (const Dim& other : p.dims)
    if (!other.name.empty() && other.name == d.name) ++here;
  return here > 1;
}

std::set<std::string> Compiler::names_needed() const {
  std::set<std::string> needed(asked_.begin(), asked_.end());
  for (size_t i = 0; i < count(); ++i) {
    for (const Dim& d : param(i).dims) {
      if (d.name.empty() || covered_[i]) continue;
      if (is_lead(i) ? lead_dim_special(param(i), d) : uses_.at(d.name) > 1 || is_int(d.name))
        needed.insert(d.name);
    }
  }
  return needed;
}

void Compiler::dims(size_t i) {
  const Param& p = param(i);
  for (size_t k = 0; k < p.dims.size(); ++k) {
    const Dim& d = p.dims[k];
    const auto axis = static_cast<uint8_t>(p.dims.size() - k);
    Step s{.op = Op::kConstant, .arg = static_cast<uint8_t>(i), .axis = axis};
    s.value = static_cast<uint64_t>(d.number);
    if (d.kind == Dim::Kind::kConstant) emit(s, covered_[i]);
    // A factor is a check of its own.
    if (d.name.empty() || d.broadcast || (d.number == 1 && !is_shared(d.name))) continue;
    s.op = Op::kDim;
    if (d.kind == Dim::Kind::kLeading) s.op = Op::kLeading, --s.axis;
    s.reg = reg(d.kind == Dim::Kind::kLeading ? "*" + d.name : d.name);
    emit(s, covered_[i] || (d.number == 1 && needed_.count(d.name) == 0));
  }
}

void Compiler::broadcasts(size_t i) {
  const Param& p = param(i);
  for (size_t k = 0; k < p.dims.size(); ++k) {
    const Dim& d = p.dims[k];
    if (!d.broadcast) continue;
    const bool leading = d.kind == Dim::Kind::kLeading;
    emit({.op = leading ? Op::kLeadingBroadcast : Op::kBroadcast,
          .arg = static_cast<uint8_t>(i),
          .axis = static_cast<uint8_t>(p.dims.size() - k - (leading ? 1 : 0)),
          .reg = reg(leading ? "*" + d.name : d.name),
          .value = static_cast<uint64_t>(d.number)},
         false);
  }
}

// Clauses read a leading group as the product of its dimensions.
void Compiler::products() {
  for (const auto& name : asked_) {
    const auto leading = regs_.find("*" + name);
    if (leading == regs_.end()) continue;
    const uint8_t source = leading->second;
    emit({.op = Op::kProduct, .reg = reg(name), .other = source}, false);
  }
}

void Compiler::clause(size_t k) {
  const Clause& c = s_.clauses[k];
  const auto reg_of = [&](const Term& t) { return t.name.empty() ? Step::kNoReg : reg(t.name); };
  switch (c.kind) {
    case Clause::Kind::kDTypes:
      if (c.left.name == lead_variable_) program_.dtypes_ = mask_of(c.dtypes);
      return emit(
          {.op = Op::kDTypeSet, .reg = reg_of(c.left), .mask = mask_of(c.dtypes), .value = k},
          c.left.name == lead_variable_);
    case Clause::Kind::kIff:
    case Clause::Kind::kOr:
      return emit({.op = c.kind == Clause::Kind::kIff ? Op::kIff : Op::kOr,
                   .arg = index_of(c.left.name),
                   .other = index_of(c.right.name)},
                  false);
    case Clause::Kind::kIffDTypes:
      return emit({.op = Op::kIffDTypes,
                   .arg = index_of(c.left.name),
                   .reg = reg_of(c.right),
                   .mask = mask_of(c.dtypes),
                   .value = k},
                  false);
    case Clause::Kind::kMultiple:
    case Clause::Kind::kCompare: {
      Step s{.op = Op::kCompare, .reg = reg_of(c.left), .other = reg_of(c.right), .value = k};
      if (c.guard != Clause::Guard::kNone) s.arg = index_of(c.guard_param);
      return emit(s, false);
    }
    case Clause::Kind::kElements:
    case Clause::Kind::kMayAlias: return;
  }
}

void Compiler::overlaps(size_t w) {
  const auto arg = static_cast<uint8_t>(w);
  emit({.op = Op::kSelf, .arg = arg}, is_lead(w));
  for (size_t t = 0; t < count(); ++t) {
    const Param& q = param(t);
    if (!q.is_tensor() || (q.is_written() && t < w)) continue;
    if (t == w && q.kind != Kind::kTensorList) continue;
    emit({.op = Op::kPair,
          .arg = arg,
          .other = static_cast<uint8_t>(t),
          .value = may_alias(w, t) ? uint64_t{1} : 0},
         (is_lead(w) && in_lane(t)) || (is_lead(t) && in_lane(w)));
  }
}

Result<Program> Program::compile(std::string_view schema_text) {
  Result<Schema> s = parse_schema(schema_text);
  if (!s.ok()) return std::move(s).status();
  return Compiler(std::move(*s)).run();
}

}  // namespace yard::op
