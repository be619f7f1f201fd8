// SPDX-License-Identifier: Apache-2.0
// The checks of a call that do not fit into lanes, run step by step; no allocation.
#include <algorithm>

#include "op/overlap.h"
#include "op/program_cold.h"

namespace yard::op {
namespace {

constexpr uint64_t kNoDevice = ~0ull;

class Machine {
 public:
  Machine(const ProgramCold& cold, const yard_value_t* args, uint64_t device) noexcept
      : cold_(cold), args_(args), device_(device) {}

  // YARD_CALL_ALIASED is added to `flags_` on the way.
  bool run() noexcept {
    for (const Step& s : cold_.steps)
      if (!step(s)) return false;
    return true;
  }
  int32_t flags() const noexcept { return flags_; }

 private:
  bool step(const Step& s) noexcept {
    switch (s.op) {
      case Step::Op::kEnum: return static_cast<uint64_t>(args_[s.arg].u.i) < s.value;
      case Step::Op::kFacts: return each<&Machine::facts>(s);
      case Step::Op::kRank: return each<&Machine::rank>(s);
      case Step::Op::kDType: return each<&Machine::dtype>(s);
      case Step::Op::kDTypeSet: return !has(s.reg) || ((s.mask >> value_[s.reg]) & 1) != 0;
      case Step::Op::kInt: return meet(s.reg, args_[s.arg].u.i);
      case Step::Op::kDim: return each<&Machine::dim>(s);
      case Step::Op::kDimSpread: return each<&Machine::dim_spread>(s);
      case Step::Op::kConstant: return each<&Machine::constant>(s);
      case Step::Op::kLeading: return each<&Machine::leading>(s);
      case Step::Op::kLeadingSpread: return each<&Machine::leading_spread>(s);
      case Step::Op::kProduct: return product(s);
      case Step::Op::kCompare: return compare(cold_.comparisons[s.value]);
      case Step::Op::kIff: return given(s.arg) == given(s.other);
      case Step::Op::kOr: return given(s.arg) || given(s.other);
      case Step::Op::kSelf: return each<&Machine::self>(s);
      case Step::Op::kPair: return pair(s);
    }
    return false;
  }

  template <bool (Machine::*kCheck)(const Step&, const yard_tensor_t&)>
  bool each(const Step& s) noexcept {
    const yard_value_t& v = args_[s.arg];
    if (v.tag == YARD_TAG_TENSOR) return (this->*kCheck)(s, *v.u.tensor);
    for (const yard_tensor_t* t : Tensors(v))
      if (!(this->*kCheck)(s, *t)) return false;
    return true;
  }

  bool given(uint8_t arg) const noexcept { return args_[arg].tag != YARD_TAG_NONE; }
  bool has(uint8_t reg) const noexcept { return ((known_ >> reg) & 1) != 0; }
  // Sets the register, or compares with what it holds.
  bool meet(uint8_t reg, int64_t v) noexcept {
    if (has(reg)) return value_[reg] == v;
    known_ |= 1ull << reg;
    value_[reg] = v;
    return true;
  }
  static int64_t size(const Step& s, const yard_tensor_t& t) noexcept {
    return t.shape[t.ndim - s.axis];
  }

  bool facts(const Step& s, const yard_tensor_t& t) noexcept {
    if (device_ == kNoDevice) device_ = t.facts & YARD_FACTS_DEVICE;
    return (t.facts & s.mask) == s.value && (t.facts & YARD_FACTS_DEVICE) == device_;
  }
  bool rank(const Step& s, const yard_tensor_t& t) noexcept { return t.ndim >= s.axis; }
  bool dtype(const Step& s, const yard_tensor_t& t) noexcept {
    return meet(s.reg, static_cast<int64_t>(t.facts & YARD_FACTS_DTYPE));
  }
  bool dim(const Step& s, const yard_tensor_t& t) noexcept {
    const int64_t n = size(s, t);
    if (s.value == 1) return meet(s.reg, n);
    const auto factor = static_cast<int64_t>(s.value);
    return n % factor == 0 && meet(s.reg, n / factor);
  }
  bool dim_spread(const Step& s, const yard_tensor_t& t) noexcept {
    const int64_t n = size(s, t);
    return n == 1 || times(value_[s.reg], static_cast<int64_t>(s.value)) == n;
  }
  bool constant(const Step& s, const yard_tensor_t& t) noexcept {
    return size(s, t) == static_cast<int64_t>(s.value);
  }
  // The register of a group holds its length; group_ says where it stands.
  bool leading(const Step& s, const yard_tensor_t& t) noexcept {
    const int64_t n = t.ndim - s.axis;
    if (!has(s.reg)) {
      group_[s.reg] = t.shape;
      return meet(s.reg, n);
    }
    return value_[s.reg] == n && std::equal(t.shape, t.shape + n, group_[s.reg]);
  }
  bool leading_spread(const Step& s, const yard_tensor_t& t) noexcept {
    const int64_t n = t.ndim - s.axis, wide = value_[s.reg];
    if (n > wide) return false;
    for (int64_t i = 0; i < n; ++i)
      if (t.shape[i] != 1 && t.shape[i] != group_[s.reg][wide - n + i]) return false;
    return true;
  }
  bool product(const Step& s) noexcept {
    if (!has(s.other)) return true;
    int64_t p = 1;
    for (int64_t i = 0; i < value_[s.other]; ++i) p *= group_[s.other][i];
    return meet(s.reg, p);
  }

  bool compare(const Comparison& c) const noexcept {
    if (c.guard != Clause::Guard::kNone && given(c.guard_arg) != (c.guard == Clause::Guard::kIf))
      return true;
    if (c.left_reg >= 0 && !has(static_cast<uint8_t>(c.left_reg))) return true;
    if (c.right_reg >= 0 && !has(static_cast<uint8_t>(c.right_reg))) return true;
    const int64_t a = c.left_reg >= 0 ? value_[c.left_reg] : 1;
    const int64_t b = c.right_reg >= 0 ? value_[c.right_reg] : 1;
    if (c.kind == Clause::Kind::kMultiple) return a % c.right == 0;
    int64_t left, right;
    if (__builtin_mul_overflow(c.left, a, &left) || __builtin_mul_overflow(c.right, b, &right))
      return holds(times(c.left, a), c.compare, times(c.right, b));
    return holds(left, c.compare, right);
  }

  bool self(const Step&, const yard_tensor_t& t) noexcept {
    return (t.facts & YARD_FACTS_PLAIN) != 0 || !overlaps_itself(t);
  }
  bool pair(const Step& s) noexcept {
    const yard_value_t &x = args_[s.arg], &y = args_[s.other];
    if (x.tag == YARD_TAG_TENSOR && y.tag == YARD_TAG_TENSOR &&
        !ranges_may_meet(*x.u.tensor, *y.u.tensor))
      return true;
    return pairs(s);
  }
  [[gnu::noinline]] bool pairs(const Step& s) noexcept {
    const Tensors a(args_[s.arg]), b(args_[s.other]);
    for (uint32_t i = 0; i < a.count; ++i) {
      // Within one list every two tensors are looked at once.
      for (uint32_t k = s.arg == s.other ? i + 1 : 0; k < b.count; ++k) {
        if (!ranges_may_meet(*a.list[i], *b.list[k])) continue;
        const Overlap o = overlap(*a.list[i], *b.list[k]);
        if (o == Overlap::kNone) continue;
        if (o != Overlap::kSame || s.value == 0) return false;
        flags_ |= static_cast<int32_t>(YARD_CALL_ALIASED);
      }
    }
    return true;
  }

  const ProgramCold& cold_;
  const yard_value_t* args_;
  uint64_t device_;
  uint64_t known_ = 0;
  int32_t flags_ = 0;
  int64_t value_[kMaxNames];
  const int64_t* group_[kMaxNames];
};

}  // namespace

int32_t Program::run_steps(const yard_value_t* args, int32_t flags) const noexcept {
  const uint64_t device =
      lane_count_ != 0 ? args[lane_args_[0]].u.tensor->facts & YARD_FACTS_DEVICE : kNoDevice;
  Machine machine(*cold_, args, device);
  return machine.run() ? flags | machine.flags() : -1;
}

uint32_t Program::tensors_with_free_rows() const noexcept {
  // Lanes that are like the lead in every size, or as long as its last one, say all there is to say.
  if (lane_count_ == 0 || has_steps_ || last_end_ != lane_count_) return 0;
  for (uint32_t i = 0; i < arg_count_; ++i)
    if ((tags_[i] & ~kOptional) == YARD_TAG_LIST || tags_[i] == (YARD_TAG_TENSOR | kOptional))
      return 0;
  uint32_t which = 0;
  for (uint32_t i = 0; i < same_end_; ++i) which |= 1u << lane_args_[i];
  return which;
}

int32_t Program::fits_exactly(const yard_value_t* args) const noexcept {
  if (lane_count_ == 0) return run_steps(args, 0);
  const yard_tensor_t& lead = *args[lane_args_[0]].u.tensor;
  const Lane& first = lanes_[0];
  const uint64_t rank = (lead.facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT;
  int32_t flags = 0;
  // PLAIN is only what the quick way wants.
  if (((static_cast<uint32_t>(lead.facts) ^ first.want) & first.fixed & ~YARD_FACTS_PLAIN) != 0)
    return -1;
  if (rank < min_rank_ || ((dtypes_ >> (lead.facts & YARD_FACTS_DTYPE)) & 1) == 0) return -1;
  if ((lead.facts & YARD_FACTS_PLAIN) == 0 && overlaps_itself(lead)) return -1;
  for (uint32_t i = 1; i < lane_count_; ++i) {
    const yard_tensor_t& t = *args[lane_args_[i]].u.tensor;
    if (!lane_fits(lanes_[i], lead, t)) return -1;
    if (!ranges_may_meet(lead, t)) continue;
    // Working in place is common: compact tensors of one kind at one address need no closer look.
    const bool in_place = lanes_[i].kind == Lane::Kind::kSame && lead.data == t.data && lead.data &&
                          lead.byte_offset == t.byte_offset && span_of(t.facts) != 0 &&
                          (lead.facts & t.facts & YARD_FACTS_COMPACT) != 0;
    const Overlap o = in_place ? Overlap::kSame : overlap(lead, t);
    if (o == Overlap::kNone) continue;
    if (o != Overlap::kSame || !lanes_[i].may_alias) return -1;
    flags = static_cast<int32_t>(YARD_CALL_ALIASED);
  }
  return has_steps_ ? run_steps(args, flags) : flags;
}

bool Program::list_fits(const yard_value_t& v) const noexcept {
  if (v.count == 0) return true;
  if (v.tag == YARD_TAG_STRING) return v.u.string != nullptr;
  return v.u.list != nullptr && std::all_of(v.u.list, v.u.list + v.count,
                                            [](const yard_tensor_t* t) { return t != nullptr; });
}

}  // namespace yard::op
