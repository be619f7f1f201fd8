// SPDX-License-Identifier: Apache-2.0
// Choosing the lead and making lanes: see compiler.h.
#include "op/compiler.h"

#include <algorithm>

namespace yard::op {
namespace {

constexpr uint32_t kDTypeBits = static_cast<uint32_t>(YARD_FACTS_DTYPE);
constexpr uint32_t kDeviceBits = static_cast<uint32_t>(YARD_FACTS_DEVICE);
constexpr uint32_t kRankBits = static_cast<uint32_t>(YARD_FACTS_RANK);
constexpr uint32_t kValidBit = static_cast<uint32_t>(YARD_FACTS_VALID);

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

Program Compiler::run() {
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
  return std::find(cold_.aliases.begin(), cold_.aliases.end(),
                   std::pair<uint8_t, uint8_t>(output, input)) != cold_.aliases.end();
}

void Compiler::count_uses() {
  for (const Param& p : s_.params)
    for (const Dim& d : p.dims)
      if (!d.name.empty()) uses_[d.name] += voices(p);
  for (const Clause& c : s_.clauses)
    for (const Term* t : {&c.left, &c.right})
      if (!t->name.empty()) asked_.insert(t->name);
}

void Compiler::choose_lead() {
  lane_of_.assign(count(), -1);
  lead_ = -1;
  for (size_t i = 0; i < count(); ++i) {
    if (!always_there(param(i)) || !param(i).is_written()) continue;
    if (lead_ < 0 || (param(i).is_output() && !param(static_cast<size_t>(lead_)).is_output()))
      lead_ = static_cast<int>(i);
  }
}

bool Compiler::same_dim(const Dim& a, const Dim& b) {
  return a.kind == b.kind && a.kind != Dim::Kind::kAny && !a.broadcast && !b.broadcast &&
         a.name == b.name && a.number == b.number;
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

void Compiler::fixed_facts(const Param& p, uint32_t& mask, uint32_t& value) const {
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

void Compiler::make_lanes() {
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

Program::Lane Compiler::make_lane(size_t i) {
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

}  // namespace yard::op
