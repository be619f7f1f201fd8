// SPDX-License-Identifier: Apache-2.0
// Compiles a schema to a Program: the steps, and for simple schemas the quick check.
#include <set>

#include "base/lists.h"
#include "base/results.h"
#include "op/numbers.h"
#include "op/steps.h"

namespace yard::op {
namespace {

// Indexed by Kind: the tag of a value, and its letter in a signature.
constexpr std::pair<uint8_t, char> kTags[] = {
    {YARD_TAG_TENSOR, 't'}, {YARD_TAG_LIST, 'v'},   {YARD_TAG_INT, 'i'}, {YARD_TAG_FLOAT, 'f'},
    {YARD_TAG_BOOL, 'b'},   {YARD_TAG_STRING, 'v'}, {YARD_TAG_INT, 'i'}};
static_assert(std::size(kTags) == static_cast<size_t>(Kind::kEnum) + 1);

// Returns how many tensors of a parameter use a name. A list counts twice, because its tensors must
// agree with each other.
size_t uses_in(const Param& p) { return p.kind == Kind::kTensorList ? 2 : 1; }

bool same_dim(const Dim& a, const Dim& b) {
  return a.kind == b.kind && a.kind != Dim::Kind::kAny && !a.broadcast && !b.broadcast &&
         a.name == b.name && a.number == b.number;
}

// The bits of facts that a parameter's type fixes.
struct FixedFacts {
  explicit FixedFacts(const Param& p) {
    if (p.variable.empty()) {
      mask |= static_cast<uint32_t>(YARD_FACTS_DTYPE);
      value |= static_cast<uint32_t>(p.dtype);
    }
    if (!p.has_leading()) {
      mask |= static_cast<uint32_t>(YARD_FACTS_RANK);
      value |= static_cast<uint32_t>(p.dims.size()) << YARD_FACTS_RANK_SHIFT;
    }
  }
  uint32_t mask = 0, value = 0;
};

}  // namespace

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
    make_steps();
    make_relations();
    cold_.fields = make_fields(s_);
    cold_.schema = std::move(s_);
    program_.cold_ = std::make_shared<const ProgramCold>(std::move(cold_));
    return std::move(program_);
  }

 private:
  using Op = Step::Op;

  const Param& param(size_t i) const { return s_.params[i]; }
  uint8_t count() const { return program_.arg_count_; }
  uint8_t index_of(const std::string& name) const {
    return static_cast<uint8_t>(s_.index_of(name));
  }
  // Whether more than one tensor, a clause or an int parameter uses the name of a dimension.
  bool is_shared(const std::string& name) const {
    return uses_.at(name) > 1 || asked_.contains(name) || s_.find(name) != nullptr;
  }

  void outputs() {
    for (uint8_t i = 0; i < count(); ++i) {
      if (param(i).is_output()) cold_.outputs.push_back(i);
      if (param(i).access == Access::kReadWrite) cold_.has_inout = true;
    }
    for (const Clause& c : s_.clauses)
      if (c.kind == Clause::Kind::kMayAlias)
        cold_.aliases.emplace_back(index_of(c.left.name), index_of(c.right.name));
  }

  void count_uses() {
    for (const Param& p : s_.params) {
      if (!p.variable.empty()) uses_[p.variable] += uses_in(p);
      for (const Dim& d : p.dims)
        if (!d.name.empty()) uses_[d.name] += uses_in(p);
    }
    for (const Clause& c : s_.clauses)
      for (const Term* t : {&c.left, &c.right})
        if (!t->name.empty() && c.kind != Clause::Kind::kElements) asked_.insert(t->name);
  }

  // ---- The quick check of simple schemas ----

  // Whether calls are checked only for tensors that are always given, and the output only for its
  // dtype.
  bool is_simple(const Param& output) const {
    const auto simple = [&](const Param& p) {
      if (p.kind == Kind::kEnum || (p.kind == Kind::kInt && uses_.contains(p.name))) return false;
      return !p.is_tensor() || (p.is_required() && p.is_written() == (&p == &output));
    };
    const auto harmless = [&](const Clause& c) {
      return c.kind == Clause::Kind::kElements || c.kind == Clause::Kind::kMayAlias ||
             (c.kind == Clause::Kind::kDTypes && c.left.name == output.variable);
    };
    std::set<std::string> names;
    const auto free = [&](const Dim& d) {
      return d.kind != Dim::Kind::kConstant && !d.broadcast && d.number == 1 &&
             (d.name.empty() || names.insert(d.name).second);
    };
    return std::ranges::all_of(s_.params, simple) && std::ranges::all_of(s_.clauses, harmless) &&
           std::ranges::all_of(output.dims, free);
  }

  // Returns how a tensor relates to the output, or nullopt if a relation cannot express it.
  std::optional<Program::Relation> relate(const Param& output, uint8_t i) const {
    const Param& p = param(i);
    const FixedFacts facts(p);
    Program::Relation r{.arg = i,
                        .same = static_cast<uint32_t>(YARD_FACTS_DEVICE),
                        .fixed = facts.mask | static_cast<uint32_t>(YARD_FACTS_VALID),
                        .want = facts.value | static_cast<uint32_t>(YARD_FACTS_VALID)};
    if (!p.variable.empty()) {
      if (p.variable != output.variable) return std::nullopt;
      r.same |= static_cast<uint32_t>(YARD_FACTS_DTYPE);
    }
    const size_t n = p.dims.size();
    if (p.has_leading() ? n != output.dims.size() : n > output.trailing()) return std::nullopt;
    for (size_t k = 0; k < n; ++k) {
      const Dim& a = output.dims[output.dims.size() - n + k];
      Dim b = p.dims[k];
      if (k + 1 == n && b.kind == Dim::Kind::kNamed && b.number <= 255)
        r.scale = static_cast<uint8_t>(std::exchange(b.number, 1));
      if (!same_dim(a, b)) return std::nullopt;
    }
    r.dims = p.has_leading() ? Program::kAllDims : static_cast<uint8_t>(n);
    if (p.has_leading()) r.same |= static_cast<uint32_t>(YARD_FACTS_RANK);
    return r;
  }

  void make_relations() {
    if (cold_.outputs.size() != 1 || count() > Program::kMaxRelations) return;
    const uint8_t out = cold_.outputs[0];
    const Param& output = param(out);
    if (!is_simple(output)) return;
    // The quick check accepts plain outputs only: they never overlap themselves.
    const FixedFacts facts(output);
    constexpr auto kBits = static_cast<uint32_t>(YARD_FACTS_VALID | YARD_FACTS_PLAIN);
    std::vector<Program::Relation> all = {
        {.arg = out, .fixed = facts.mask | kBits, .want = facts.value | kBits}};
    for (uint8_t i = 0; i < count(); ++i) {
      if (i == out || !param(i).is_tensor()) continue;
      const auto relation = relate(output, i);
      if (!relation) return;
      all.push_back(*relation);
    }
    std::ranges::copy(all, program_.relations_);
    program_.relation_count_ = static_cast<uint8_t>(all.size());
    program_.min_rank_ = static_cast<uint8_t>(output.trailing());
    if (const auto* dtypes = s_.dtypes_of(output.variable)) program_.dtypes_ = mask_of(*dtypes);
  }

  // ---- The steps ----

  uint8_t reg(const std::string& name) {
    const auto [it, fresh] = regs_.try_emplace(name, static_cast<uint8_t>(regs_.size()));
    if (fresh) cold_.names.push_back(name);
    return it->second;
  }
  uint8_t reg(const Dim& d) { return reg(d.kind == Dim::Kind::kLeading ? "*" + d.name : d.name); }
  void emit(const Step& s) { cold_.steps.push_back(s); }
  // Makes the steps that `f` emits a group for the tensors of a parameter.
  template <class F>
  void group(uint8_t arg, const F& f) {
    const size_t at = cold_.steps.size();
    emit({.op = Op::kTensors, .arg = arg});
    f();
    cold_.steps[at].value = cold_.steps.size() - at - 1;
    if (cold_.steps[at].value == 0) cold_.steps.pop_back();
  }

  void make_steps() {
    for (uint8_t i = 0; i < count(); ++i)
      if (param(i).kind == Kind::kEnum)
        emit({.op = Op::kEnum, .arg = i, .value = param(i).enumerators.size()});
    for (uint8_t i = 0; i < count(); ++i)
      if (param(i).is_tensor()) emit({.op = Op::kReadable, .arg = i});
    for (uint8_t i = 0; i < count(); ++i)
      if (const Param& p = param(i);
          p.kind == Kind::kInt && (uses_.contains(p.name) || asked_.contains(p.name)))
        emit({.op = Op::kInt, .arg = i, .reg = reg(p.name)});
    // Messages compare outputs with inputs, and optional tensors with required ones.
    for (const int pass : {0, 1, 2, 3})
      for (uint8_t i = 0; i < count(); ++i)
        if (param(i).is_tensor() &&
            (param(i).is_output() ? 2 : 0) + (param(i).is_required() ? 0 : 1) == pass)
          group(i, [&] {
            type(i);
            dims(i);
          });
    for (uint8_t i = 0; i < count(); ++i)
      if (param(i).is_tensor()) group(i, [&] { broadcasts(i); });
    products();
    for (size_t k = 0; k < s_.clauses.size(); ++k) clause(k);
    for (uint8_t i = 0; i < count(); ++i)
      if (param(i).is_tensor() && param(i).is_written()) overlaps(i);
  }

  void type(uint8_t i) {
    const Param& p = param(i);
    const FixedFacts facts(p);
    Step s{.op = Op::kType, .arg = i, .mask = facts.mask, .value = facts.value};
    if (p.has_leading()) s.axis = static_cast<uint8_t>(p.trailing());
    if (!p.variable.empty() && is_shared(p.variable)) s.reg = reg(p.variable);
    emit(s);
  }

  // Returns a step about dimension k of a parameter. A leading group ends before its axis.
  Step dim_step(Op op, uint8_t i, size_t k) {
    const Dim& d = param(i).dims[k];
    const size_t after = param(i).dims.size() - k - (d.kind == Dim::Kind::kLeading ? 1 : 0);
    return {.op = op,
            .arg = i,
            .axis = static_cast<uint8_t>(after),
            .reg = d.name.empty() ? Step::kNoReg : reg(d),
            .value = static_cast<uint64_t>(d.number)};
  }

  void dims(uint8_t i) {
    for (size_t k = 0; k < param(i).dims.size(); ++k) {
      const Dim& d = param(i).dims[k];
      if (d.kind == Dim::Kind::kConstant) emit(dim_step(Op::kConstant, i, k));
      // A factor needs a step even if nothing else uses the name.
      if (d.name.empty() || d.broadcast || (d.number == 1 && !is_shared(d.name))) continue;
      emit(dim_step(d.kind == Dim::Kind::kLeading ? Op::kLeading : Op::kDim, i, k));
    }
  }

  void broadcasts(uint8_t i) {
    for (size_t k = 0; k < param(i).dims.size(); ++k)
      if (const Dim& d = param(i).dims[k]; d.broadcast)
        emit(
            dim_step(d.kind == Dim::Kind::kLeading ? Op::kLeadingBroadcast : Op::kBroadcast, i, k));
  }

  // Clauses read a leading group as the product of its dimensions.
  void products() {
    for (const auto& name : asked_) {
      const std::string group = "*" + name;
      if (regs_.contains(group)) emit({.op = Op::kProduct, .reg = reg(name), .other = reg(group)});
    }
  }

  void clause(size_t k) {
    const Clause& c = s_.clauses[k];
    const auto reg_of = [&](const Term& t) { return t.name.empty() ? Step::kNoReg : reg(t.name); };
    const uint8_t left = index_of(c.left.name), right = index_of(c.right.name);
    const uint8_t guard = c.guard == Clause::Guard::kNone ? 0 : index_of(c.guard_param);
    switch (c.kind) {
      case Clause::Kind::kDTypes:
        return emit(
            {.op = Op::kDTypeSet, .reg = reg_of(c.left), .mask = mask_of(c.dtypes), .value = k});
      case Clause::Kind::kIff: return emit({.op = Op::kIff, .arg = left, .other = right});
      case Clause::Kind::kOr: return emit({.op = Op::kOr, .arg = left, .other = right});
      case Clause::Kind::kIffDTypes:
        return emit({.op = Op::kIffDTypes,
                     .arg = left,
                     .reg = reg_of(c.right),
                     .mask = mask_of(c.dtypes),
                     .value = k});
      case Clause::Kind::kMultiple:
      case Clause::Kind::kCompare:
        return emit({.op = Op::kCompare,
                     .arg = guard,
                     .reg = reg_of(c.left),
                     .other = reg_of(c.right),
                     .value = k});
      case Clause::Kind::kFloat:
        return emit({.op = Op::kFloat, .arg = left, .other = guard, .value = k});
      case Clause::Kind::kElements:
      case Clause::Kind::kMayAlias: return;
    }
  }

  void overlaps(uint8_t w) {
    emit({.op = Op::kSelf, .arg = w});
    for (uint8_t t = 0; t < count(); ++t) {
      const Param& q = param(t);
      if (!q.is_tensor() || (q.is_written() && t < w)) continue;
      if (t == w && q.kind != Kind::kTensorList) continue;
      const bool may_alias = base::contains(cold_.aliases, std::pair(w, t));
      emit({.op = Op::kPair, .arg = w, .other = t, .value = may_alias});
    }
  }

  Schema s_;
  Program program_;
  ProgramCold cold_;
  std::map<std::string, uint8_t> regs_;
  std::map<std::string, size_t> uses_;  // of dimensions and dtype variables, by tensors
  std::set<std::string> asked_;         // names in clauses
};

Result<Program> Program::compile(std::string_view schema_text) {
  YARD_ASSIGN_OR_RETURN(Schema s, parse_schema(schema_text));
  return Compiler(std::move(s)).run();
}

}  // namespace yard::op
