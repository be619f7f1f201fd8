// SPDX-License-Identifier: Apache-2.0
// Steps for what lanes do not cover: see compiler.h and program_cold.h.
#include <algorithm>

#include "op/compiler.h"

namespace yard::op {
namespace {

uint64_t dtype_mask(const Clause& c) {
  uint64_t mask = 0;
  for (DType t : c.dtypes) mask |= YARD_DTYPE_BIT(static_cast<int>(t));
  return mask;
}

}  // namespace

void Compiler::scalars() {
  for (size_t i = 0; i < count(); ++i)
    if (param(i).kind == Kind::kEnum) emit(Step::Op::kEnum, i).value = param(i).enumerators.size();
}

void Compiler::facts() {
  for (size_t i = 0; i < count(); ++i) {
    const Param& p = param(i);
    if (!p.is_tensor()) continue;
    if (!in_lane(i)) {
      uint32_t mask, value;
      fixed_facts(p, mask, value);
      Step& s = emit(Step::Op::kFacts, i);
      s.mask = mask;
      s.value = value;
    }
    if (p.has_leading() && p.trailing() > 0 && !is_lead(i) && !covered_[i])
      emit(Step::Op::kRank, i).axis = static_cast<uint8_t>(p.trailing());
  }
}

void Compiler::dtypes() {
  std::map<std::string, size_t> total;
  for (const Param& p : s_.params)
    if (!p.variable.empty()) total[p.variable] += voices(p);
  std::string lead_variable = lead_ < 0 ? "" : param(static_cast<size_t>(lead_)).variable;
  // Lanes compare the lead's variable among themselves; the others need it in a register.
  bool lead_asked = false;
  for (size_t i = 0; i < count(); ++i)
    if (!lead_variable.empty() && param(i).variable == lead_variable && !in_lane(i))
      lead_asked = true;
  for (size_t i = 0; i < count(); ++i) {
    const Param& p = param(i);
    if (p.variable.empty() || (total[p.variable] == 1 && asked_.count(p.variable) == 0)) continue;
    if (p.variable == lead_variable && in_lane(i) && !(lead_asked && is_lead(i))) continue;
    emit(Step::Op::kDType, i).reg = reg(p.variable);
  }
  for (const Clause& c : s_.clauses) {
    if (c.kind != Clause::Kind::kDTypes) continue;
    if (c.left.name == lead_variable) {
      program_.dtypes_ = dtype_mask(c);
    } else {
      Step& s = emit(Step::Op::kDTypeSet, 0);
      s.reg = reg(c.left.name);
      s.mask = dtype_mask(c);
    }
  }
}

void Compiler::integers() {
  for (size_t i = 0; i < count(); ++i) {
    const Param& p = param(i);
    if (p.kind == Kind::kInt && (uses_[p.name] > 0 || asked_.count(p.name) != 0))
      emit(Step::Op::kInt, i).reg = reg(p.name);
  }
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

void Compiler::dims() {
  const std::set<std::string> needed = names_needed();
  // Those always there come first, so that clauses and broadcasts find a value where there is one.
  for (const bool first : {true, false}) {
    for (size_t i = 0; i < count(); ++i) {
      const Param& p = param(i);
      if (!p.is_tensor() || always_there(p) != first || covered_[i]) continue;
      for (size_t k = 0; k < p.dims.size(); ++k) dim(i, p.dims[k], p.dims.size() - k, needed);
    }
  }
}

void Compiler::dim(size_t i, const Dim& d, size_t axis, const std::set<std::string>& needed) {
  if (d.kind == Dim::Kind::kConstant) {
    Step& s = emit(Step::Op::kConstant, i);
    s.axis = static_cast<uint8_t>(axis);
    s.value = static_cast<uint64_t>(d.number);
  }
  if (d.name.empty() || d.broadcast) return;
  // A factor is a check of its own.
  if (needed.count(d.name) == 0 && d.number == 1) return;
  const bool leading = d.kind == Dim::Kind::kLeading;
  Step& s = emit(leading ? Step::Op::kLeading : Step::Op::kDim, i);
  s.axis = static_cast<uint8_t>(leading ? axis - 1 : axis);
  s.reg = reg(leading ? "*" + d.name : d.name);
  s.value = static_cast<uint64_t>(d.number);
}

void Compiler::spreads() {
  for (size_t i = 0; i < count(); ++i) {
    const Param& p = param(i);
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (!d.broadcast) continue;
      const bool leading = d.kind == Dim::Kind::kLeading;
      Step& s = emit(leading ? Step::Op::kLeadingSpread : Step::Op::kDimSpread, i);
      s.axis = static_cast<uint8_t>(p.dims.size() - k - (leading ? 1 : 0));
      s.reg = reg(leading ? "*" + d.name : d.name);
      s.value = static_cast<uint64_t>(d.number);
    }
  }
}

void Compiler::clauses() {
  for (const auto& name : asked_) {
    const auto group = regs_.find("*" + name);
    if (group == regs_.end()) continue;
    const uint8_t source = group->second;
    Step& s = emit(Step::Op::kProduct, 0);
    s.other = source;
    s.reg = reg(name);
  }
  for (const Clause& c : s_.clauses) {
    switch (c.kind) {
      case Clause::Kind::kIff:
      case Clause::Kind::kOr: {
        const auto left = static_cast<size_t>(s_.index_of(c.left.name));
        emit(c.kind == Clause::Kind::kIff ? Step::Op::kIff : Step::Op::kOr, left).other =
            static_cast<uint8_t>(s_.index_of(c.right.name));
        break;
      }
      case Clause::Kind::kCompare:
      case Clause::Kind::kMultiple: comparison(c); break;
      default: break;
    }
  }
}

void Compiler::comparison(const Clause& c) {
  Comparison r;
  r.kind = c.kind;
  r.compare = c.compare;
  r.guard = c.guard;
  if (c.guard != Clause::Guard::kNone)
    r.guard_arg = static_cast<uint8_t>(s_.index_of(c.guard_param));
  r.left = c.left.number;
  r.right = c.right.number;
  if (!c.left.name.empty()) r.left_reg = reg(c.left.name);
  if (!c.right.name.empty()) r.right_reg = reg(c.right.name);
  emit(Step::Op::kCompare, 0).value = cold_.comparisons.size();
  cold_.comparisons.push_back(r);
}

void Compiler::overlaps() {
  for (size_t w = 0; w < count(); ++w) {
    const Param& p = param(w);
    if (!p.is_tensor() || !p.is_written()) continue;
    if (!is_lead(w)) emit(Step::Op::kSelf, w);
    if (p.kind == Kind::kTensorList) emit(Step::Op::kPair, w).other = static_cast<uint8_t>(w);
    for (size_t t = 0; t < count(); ++t) {
      const Param& q = param(t);
      if (t == w || !q.is_tensor() || (q.is_written() && t < w)) continue;
      // Lanes look at the lead and its company.
      if ((is_lead(w) && in_lane(t)) || (is_lead(t) && in_lane(w))) continue;
      Step& s = emit(Step::Op::kPair, w);
      s.other = static_cast<uint8_t>(t);
      s.value = may_alias(w, t) ? 1 : 0;
    }
  }
}

}  // namespace yard::op
