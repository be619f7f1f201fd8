// SPDX-License-Identifier: Apache-2.0
// Running the steps of a compiled schema: see steps.h.
#include "op/steps.h"

#include <algorithm>

namespace yard::op {
namespace {

template <class Number>
bool compares(Number left, Compare c, Number right) noexcept {
  switch (c) {
    case Compare::kEq: return left == right;
    case Compare::kNe: return left != right;
    case Compare::kLt: return left < right;
    case Compare::kLe: return left <= right;
    case Compare::kGt: return left > right;
    case Compare::kGe: return left >= right;
  }
  return false;
}

}  // namespace

inline bool StepRunner::set_or_equal(uint8_t reg, int64_t v) noexcept {
  if (has(reg)) return value_[reg] == v;
  known_ |= 1ull << reg;
  value_[reg] = v;
  return true;
}

inline bool StepRunner::readable(const Step& s) noexcept {
  for (const yard_tensor_t* t : Tensors(args_[s.arg])) {
    if (device_ == kNoDevice) device_ = t->facts & YARD_FACTS_DEVICE;
    if ((t->facts & (YARD_FACTS_VALID | YARD_FACTS_DEVICE)) == (YARD_FACTS_VALID | device_))
      continue;
    tensor_ = t;
    return false;
  }
  return true;
}

inline bool StepRunner::type(const Step& s, const yard_tensor_t& t) noexcept {
  return ((t.facts ^ s.value) & s.mask) == 0 && t.ndim >= s.axis &&
         (s.reg == Step::kNoReg ||
          set_or_equal(s.reg, static_cast<int64_t>(t.facts & YARD_FACTS_DTYPE)));
}

inline bool StepRunner::dim(const Step& s, int64_t size) noexcept {
  if (s.value == 1) return set_or_equal(s.reg, size);
  const auto factor = static_cast<int64_t>(s.value);
  return size % factor == 0 && set_or_equal(s.reg, size / factor);
}

inline bool StepRunner::leading(const Step& s, const yard_tensor_t& t) noexcept {
  const int64_t n = t.ndim - s.axis;
  if (!has(s.reg)) {
    group_[s.reg] = t.shape;
    return set_or_equal(s.reg, n);
  }
  return value_[s.reg] == n && std::equal(t.shape, t.shape + n, group_[s.reg]);
}

inline bool StepRunner::leading_broadcast(const Step& s, const yard_tensor_t& t) const noexcept {
  const int64_t n = t.ndim - s.axis, full = value_[s.reg];
  if (n > full) return false;
  for (int64_t i = 0; i < n; ++i)
    if (t.shape[i] != 1 && t.shape[i] != group_[s.reg][full - n + i]) return false;
  return true;
}

inline bool StepRunner::product(const Step& s) noexcept {
  if (!has(s.other)) return true;
  int64_t p = 1;
  for (int64_t i = 0; i < value_[s.other]; ++i) p *= group_[s.other][i];
  return set_or_equal(s.reg, p);
}

inline bool StepRunner::compare(const Step& s) const noexcept {
  const Clause& c = schema_.clauses[s.value];
  if (c.guard != Clause::Guard::kNone && given(s.arg) != (c.guard == Clause::Guard::kIf))
    return true;
  int64_t a = 1, b = 1;
  if (s.reg != Step::kNoReg) {
    if (!has(s.reg)) return true;
    a = value_[s.reg];
  }
  if (s.other != Step::kNoReg) {
    if (!has(s.other)) return true;
    b = value_[s.other];
  }
  if (c.kind == Clause::Kind::kMultiple) return a % c.right.number == 0;
  int64_t left, right;
  if (__builtin_mul_overflow(c.left.number, a, &left) ||
      __builtin_mul_overflow(c.right.number, b, &right))
    return compares(times(c.left.number, a), c.compare, times(c.right.number, b));
  return compares(left, c.compare, right);
}

inline bool StepRunner::self(const Step& s) noexcept {
  for (const yard_tensor_t* t : Tensors(args_[s.arg])) {
    if ((t->facts & YARD_FACTS_PLAIN) != 0 || !overlaps_itself(*t)) continue;
    tensor_ = t;
    return false;
  }
  return true;
}

inline bool StepRunner::pair(const Step& s) noexcept {
  const yard_value_t &x = args_[s.arg], &y = args_[s.other];
  if (x.tag == YARD_TAG_TENSOR && y.tag == YARD_TAG_TENSOR &&
      !ranges_may_meet(*x.u.tensor, *y.u.tensor))
    return true;
  return pairs(s);
}

bool StepRunner::pairs(const Step& s) noexcept {
  const Tensors a(args_[s.arg]), b(args_[s.other]);
  for (uint32_t i = 0; i < a.count; ++i) {
    // Within one list each pair of tensors is compared once.
    for (uint32_t k = s.arg == s.other ? i + 1 : 0; k < b.count; ++k) {
      if (!ranges_may_meet(*a.list[i], *b.list[k])) continue;
      overlap_ = overlap(*a.list[i], *b.list[k]);
      if (overlap_ == Overlap::kNone) continue;
      if (overlap_ != Overlap::kSame || s.value == 0) return false;
      flags_ |= static_cast<int32_t>(YARD_CALL_ALIASED);
    }
  }
  return true;
}

[[gnu::always_inline]] inline bool StepRunner::call_step(const Step& s) noexcept {
  switch (s.op) {
    case Step::Op::kEnum: return static_cast<uint64_t>(args_[s.arg].u.i) < s.value;
    case Step::Op::kReadable: return readable(s);
    case Step::Op::kInt: return set_or_equal(s.reg, args_[s.arg].u.i);
    case Step::Op::kDTypeSet: return !has(s.reg) || ((s.mask >> value_[s.reg]) & 1) != 0;
    case Step::Op::kProduct: return product(s);
    case Step::Op::kCompare: return compare(s);
    case Step::Op::kIff: return given(s.arg) == given(s.other);
    case Step::Op::kOr: return given(s.arg) || given(s.other);
    case Step::Op::kSelf: return self(s);
    case Step::Op::kPair: return pair(s);
    default: return false;
  }
}

[[gnu::always_inline]] inline bool StepRunner::tensor_step(const Step& s,
                                                           const yard_tensor_t& t) noexcept {
  const auto size = [&] { return t.shape[t.ndim - s.axis]; };
  switch (s.op) {
    case Step::Op::kType: return type(s, t);
    case Step::Op::kDim: return dim(s, size());
    case Step::Op::kConstant: return size() == static_cast<int64_t>(s.value);
    case Step::Op::kLeading: return leading(s, t);
    case Step::Op::kBroadcast:
      // A register may be unset only while outputs are missing.
      return size() == 1 || !has(s.reg) ||
             times(value_[s.reg], static_cast<int64_t>(s.value)) == size();
    case Step::Op::kLeadingBroadcast: return !has(s.reg) || leading_broadcast(s, t);
    default: return false;
  }
}

bool StepRunner::holds(const Step& s, const yard_tensor_t& t) noexcept { return tensor_step(s, t); }

const Step* StepRunner::run(const std::vector<Step>& steps) noexcept {
  const Step* const end = steps.data() + steps.size();
  for (const Step* s = steps.data(); s != end; ++s) {
    if (s->op != Step::Op::kTensors) {
      if (!call_step(*s)) return s;
      continue;
    }
    const Step* const group_end = s + 1 + s->value;
    for (const yard_tensor_t* t : Tensors(args_[s->arg])) {
      const uint64_t before = known_;
      for (const Step* k = s + 1; k != group_end; ++k) {
        if (tensor_step(*k, *t)) continue;
        tensor_ = t;
        known_before_ = before;
        return k;
      }
    }
    s = group_end - 1;
  }
  return nullptr;
}

}  // namespace yard::op
