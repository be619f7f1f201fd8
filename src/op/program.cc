// SPDX-License-Identifier: Apache-2.0
// Compiling a schema: which tensor leads, what lanes cover, and steps for the rest.
#include "op/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "op/program_cold.h"

namespace yard::op {
namespace {

constexpr uint32_t kDTypeBits = static_cast<uint32_t>(YARD_FACTS_DTYPE);
constexpr uint32_t kDeviceBits = static_cast<uint32_t>(YARD_FACTS_DEVICE);
constexpr uint32_t kRankBits = static_cast<uint32_t>(YARD_FACTS_RANK);
constexpr uint32_t kValidBit = static_cast<uint32_t>(YARD_FACTS_VALID);

bool always_there(const Param& p) { return p.kind == Kind::kTensor && !p.optional; }

uint64_t dtype_mask(const Clause& c) {
  uint64_t mask = 0;
  for (DType t : c.dtypes) mask |= YARD_DTYPE_BIT(static_cast<int>(t));
  return mask;
}

uint8_t tag_of(Kind k) {
  switch (k) {
    case Kind::kTensor: return YARD_TAG_TENSOR;
    case Kind::kTensorList: return YARD_TAG_LIST;
    case Kind::kFloat: return YARD_TAG_FLOAT;
    case Kind::kBool: return YARD_TAG_BOOL;
    case Kind::kString: return YARD_TAG_STRING;
    default: return YARD_TAG_INT;
  }
}

char letter_of(Kind k) {
  switch (k) {
    case Kind::kTensor: return 't';
    case Kind::kFloat: return 'f';
    case Kind::kBool: return 'b';
    case Kind::kTensorList:
    case Kind::kString: return 'v';
    default: return 'i';
  }
}

}  // namespace

class Compiler {
 public:
  explicit Compiler(Schema s) : s_(std::move(s)) {}

  Program run() {
    for (const Param& p : s_.params) {
      program_.tags_[program_.arg_count_++] =
          static_cast<uint8_t>(tag_of(p.kind) | (p.optional ? Program::kOptional : 0));
      cold_.signature += letter_of(p.kind);
    }
    outputs();
    count_uses();
    choose_lead();
    make_lanes();
    scalars();
    facts();
    dtypes();
    integers();
    dims();
    spreads();
    clauses();
    overlaps();
    program_.form_ = form();
    cold_.fields = make_fields(s_);
    cold_.needs_shape_function = needs_shape_function(s_);
    cold_.schema = std::move(s_);
    program_.has_steps_ = !cold_.steps.empty();
    program_.cold_ = std::make_shared<const ProgramCold>(std::move(cold_));
    return std::move(program_);
  }

 private:
  const Param& param(size_t i) const { return s_.params[i]; }
  size_t count() const { return s_.params.size(); }
  bool in_lane(size_t i) const { return lane_of_[i] >= 0; }
  bool is_lead(size_t i) const { return lane_of_[i] == 0; }
  bool is_lead_param(size_t i) const { return static_cast<int>(i) == lead_; }

  uint8_t reg(const std::string& name) {
    return regs_.try_emplace(name, static_cast<uint8_t>(regs_.size())).first->second;
  }
  Step& emit(Step::Op op, size_t arg) {
    Step& s = cold_.steps.emplace_back();
    s.op = op;
    s.arg = static_cast<uint8_t>(arg);
    return s;
  }
  bool is_int(const std::string& name) const {
    const int i = s_.index_of(name);
    return i >= 0 && param(static_cast<size_t>(i)).kind == Kind::kInt;
  }

  void outputs() {
    for (size_t i = 0; i < count(); ++i) {
      if (param(i).is_output()) cold_.outputs.push_back(static_cast<uint8_t>(i));
      if (param(i).access == Access::kReadWrite) cold_.has_inout = true;
    }
    for (const Clause& c : s_.clauses)
      if (c.kind == Clause::Kind::kMayAlias)
        cold_.aliases.emplace_back(s_.index_of(c.left.name), s_.index_of(c.right.name));
  }
  bool may_alias(size_t output, size_t input) const {
    return std::find(cold_.aliases.begin(), cold_.aliases.end(),
                     std::pair<uint8_t, uint8_t>(output, input)) != cold_.aliases.end();
  }

  // In how many tensors a parameter can speak: those of a list must agree with each other.
  static size_t voices(const Param& p) { return p.kind == Kind::kTensorList ? 2 : 1; }

  // How often each name occurs; a dimension that occurs once and is asked about nowhere needs no check.
  void count_uses() {
    for (const Param& p : s_.params)
      for (const Dim& d : p.dims)
        if (!d.name.empty()) uses_[d.name] += voices(p);
    for (const Clause& c : s_.clauses)
      for (const Term* t : {&c.left, &c.right})
        if (!t->name.empty()) asked_.insert(t->name);
  }

  void choose_lead() {
    lane_of_.assign(count(), -1);
    lead_ = -1;
    for (size_t i = 0; i < count(); ++i) {
      if (!always_there(param(i)) || !param(i).is_written()) continue;
      if (lead_ < 0 || (param(i).is_output() && !param(static_cast<size_t>(lead_)).is_output()))
        lead_ = static_cast<int>(i);
    }
  }

  static bool same_dim(const Dim& a, const Dim& b) {
    return a.kind == b.kind && a.kind != Dim::Kind::kAny && !a.broadcast && !b.broadcast &&
           a.name == b.name && a.number == b.number;
  }

  // Whether a lane can say how the dimensions of p relate to those of the lead.
  static bool relate(const Param& lead, const Param& p, Program::Lane& lane) {
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

  void fixed_facts(const Param& p, uint32_t& mask, uint32_t& value) const {
    mask = value = kValidBit;
    if (p.variable.empty()) {
      mask |= kDTypeBits;
      value |= static_cast<uint32_t>(p.dtype);
    }
    if (!p.has_leading()) {
      mask |= kRankBits;
      value |= static_cast<uint32_t>(p.dims.size()) << YARD_FACTS_RANK_SHIFT;
    }
  }

  void make_lanes() {
    covered_.assign(count(), false);
    if (lead_ < 0) return;
    const auto lead = static_cast<size_t>(lead_);
    std::vector<Program::Lane> lanes = {make_lane(lead)};
    // Sizes that never overlap are plain; the others take the exact way.
    lanes[0].fixed |= static_cast<uint32_t>(YARD_FACTS_PLAIN);
    lanes[0].want |= static_cast<uint32_t>(YARD_FACTS_PLAIN);
    program_.min_rank_ = static_cast<uint8_t>(param(lead).trailing());
    for (size_t i = 0; i < count(); ++i)
      if (i != lead && always_there(param(i))) lanes.push_back(make_lane(i));
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

  Program::Lane make_lane(size_t i) {
    const Param& lead = param(static_cast<size_t>(lead_));
    const Param& p = param(i);
    Program::Lane lane;
    lane_of_[i] = is_lead_param(i) ? 0 : 1;
    lane.arg = static_cast<uint8_t>(i);
    fixed_facts(p, lane.fixed, lane.want);
    if (is_lead_param(i)) return lane;
    lane.same = kDeviceBits;
    const bool same_dtype = p.variable.empty() ? p.dtype == lead.dtype : p.variable == lead.variable;
    if (same_dtype && !p.variable.empty()) lane.same |= kDTypeBits;
    lane.may_alias = may_alias(static_cast<size_t>(lead_), i);
    covered_[i] = relate(lead, p, lane);
    if (!covered_[i] || !same_dtype || lane.scale != 1) return lane;
    if (p.dims.size() == lead.dims.size()) lane.kind = Program::Lane::Kind::kSame;
    else if (p.dims.size() == 1 && !p.has_leading()) lane.kind = Program::Lane::Kind::kLast;
    return lane;
  }

  Program::Form form() const {
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

  void scalars() {
    for (size_t i = 0; i < count(); ++i)
      if (param(i).kind == Kind::kEnum) emit(Step::Op::kEnum, i).value = param(i).enumerators.size();
  }

  void facts() {
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

  void dtypes() {
    std::map<std::string, size_t> total;
    for (const Param& p : s_.params)
      if (!p.variable.empty()) total[p.variable] += voices(p);
    std::string lead_variable = lead_ < 0 ? "" : param(static_cast<size_t>(lead_)).variable;
    // Lanes compare the lead's variable among themselves; the others need it in a register.
    bool lead_asked = false;
    for (size_t i = 0; i < count(); ++i)
      if (!lead_variable.empty() && param(i).variable == lead_variable && !in_lane(i)) lead_asked = true;
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

  void integers() {
    for (size_t i = 0; i < count(); ++i) {
      const Param& p = param(i);
      if (p.kind == Kind::kInt && (uses_[p.name] > 0 || asked_.count(p.name) != 0))
        emit(Step::Op::kInt, i).reg = reg(p.name);
    }
  }

  // Whether a dimension of the lead must be looked at although lanes compare it.
  bool lead_dim_special(const Param& p, const Dim& d) const {
    if (d.kind == Dim::Kind::kNamed && (d.number != 1 || is_int(d.name))) return true;
    size_t here = 0;
    for (const Dim& other : p.dims)
      if (!other.name.empty() && other.name == d.name) ++here;
    return here > 1;
  }

  // Names whose value steps need: everything that is not said completely by lanes.
  std::set<std::string> names_needed() const {
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

  void dims() {
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

  void dim(size_t i, const Dim& d, size_t axis, const std::set<std::string>& needed) {
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

  void spreads() {
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

  void clauses() {
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

  void comparison(const Clause& c) {
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

  void overlaps() {
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

  Schema s_;
  Program program_;
  ProgramCold cold_;
  int lead_ = -1;
  std::vector<int> lane_of_;
  std::vector<bool> covered_;
  std::map<std::string, uint8_t> regs_;
  std::map<std::string, size_t> uses_;
  std::set<std::string> asked_;
};

Result<Program> Program::compile(std::string_view schema_text) {
  Result<Schema> s = parse_schema(schema_text);
  if (!s.ok()) return std::move(s).status();
  return Compiler(std::move(*s)).run();
}

Result<Program> Program::compile(const Schema& schema) { return compile(to_string(schema)); }

const Schema& Program::schema() const noexcept { return cold_->schema; }
std::string_view Program::signature() const noexcept { return cold_->signature; }
std::span<const uint8_t> Program::outputs() const noexcept { return cold_->outputs; }
bool Program::has_inout() const noexcept { return cold_->has_inout; }
bool Program::needs_shape_function() const noexcept { return cold_->needs_shape_function; }

bool Program::may_alias(uint32_t output, uint32_t input) const noexcept {
  for (const auto& [out, in] : cold_->aliases)
    if (out == output && in == input) return true;
  return false;
}

std::optional<Field> Program::field(std::string_view name) const {
  for (const auto& [known, f] : cold_->fields)
    if (known == name) return f;
  return std::nullopt;
}

std::vector<std::string> Program::field_names() const {
  std::vector<std::string> names;
  for (const auto& entry : cold_->fields) names.push_back(entry.first);
  return names;
}

}  // namespace yard::op
