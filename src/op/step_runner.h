// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a compiled schema (steps.h). Internal to src/op.
#pragma once

#include "op/steps.h"

namespace yard::op {

// Runs steps over the arguments of one call. Does not allocate.
class StepRunner {
 public:
  StepRunner(const Schema& schema, const yard_value_t* args) noexcept
      : schema_(schema), args_(args) {}

  // Returns the first step that fails, or null if all hold.
  const Step* run(const std::vector<Step>& steps) noexcept {
    const Step* const end = steps.data() + steps.size();
    for (const Step* s = steps.data(); s != end; ++s) {
      if (s->op != Step::Op::kTensors) {
        if (!call_step(*s)) return s;
        continue;
      }
      const Step* const group_end = s + 1 + s->value;
      for (const yard_tensor_t* t : tensors_of(args_[s->arg])) {
        const uint64_t before = known_;
        for (const Step* k = s + 1; k != group_end; ++k) {
          if (holds(*k, *t)) continue;
          tensor_ = t;
          known_before_ = before;
          return k;
        }
      }
      s = group_end - 1;
    }
    return nullptr;
  }

  // Whether one step of a kTensors group holds.
  [[gnu::always_inline]] bool holds(const Step& s, const yard_tensor_t& t) noexcept {
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

  // Returns YARD_CALL_ALIASED if an output is exactly an input.
  int32_t flags() const noexcept { return flags_; }
  bool has(uint8_t reg) const noexcept { return ((known_ >> reg) & 1) != 0; }
  int64_t value(uint8_t reg) const noexcept { return value_[reg]; }
  // Returns a group's dimensions. value() is their number.
  const int64_t* group(uint8_t reg) const noexcept { return group_[reg]; }

  // These describe the failed step: its tensor, the registers that were set before the steps of
  // that tensor, and how the tensors of a pair overlap.
  const yard_tensor_t* tensor() const noexcept { return tensor_; }
  bool had(uint8_t reg) const noexcept { return ((known_before_ >> reg) & 1) != 0; }
  Overlap overlap_found() const noexcept { return overlap_; }

 private:
  static constexpr uint64_t kNoDevice = ~0ull;

  bool given(uint8_t arg) const noexcept { return args_[arg].tag != YARD_TAG_NONE; }

  bool set_or_equal(uint8_t reg, int64_t v) noexcept {
    if (has(reg)) return value_[reg] == v;
    known_ |= 1ull << reg;
    value_[reg] = v;
    return true;
  }

  bool readable(const Step& s) noexcept {
    for (const yard_tensor_t* t : tensors_of(args_[s.arg])) {
      if (device_ == kNoDevice) device_ = t->facts & YARD_FACTS_DEVICE;
      if ((t->facts & (YARD_FACTS_VALID | YARD_FACTS_DEVICE)) == (YARD_FACTS_VALID | device_))
        continue;
      tensor_ = t;
      return false;
    }
    return true;
  }

  bool type(const Step& s, const yard_tensor_t& t) noexcept {
    return ((t.facts ^ s.value) & s.mask) == 0 && t.ndim >= s.axis &&
           (s.reg == Step::kNoReg ||
            set_or_equal(s.reg, static_cast<int64_t>(t.facts & YARD_FACTS_DTYPE)));
  }

  bool dim(const Step& s, int64_t size) noexcept {
    if (s.value == 1) return set_or_equal(s.reg, size);
    const auto factor = static_cast<int64_t>(s.value);
    return size % factor == 0 && set_or_equal(s.reg, size / factor);
  }

  bool leading(const Step& s, const yard_tensor_t& t) noexcept {
    const int64_t n = t.ndim - s.axis;
    if (!has(s.reg)) {
      group_[s.reg] = t.shape;
      return set_or_equal(s.reg, n);
    }
    return value_[s.reg] == n && std::equal(t.shape, t.shape + n, group_[s.reg]);
  }

  bool leading_broadcast(const Step& s, const yard_tensor_t& t) const noexcept {
    const int64_t n = t.ndim - s.axis, full = value_[s.reg];
    if (n > full) return false;
    for (int64_t i = 0; i < n; ++i)
      if (t.shape[i] != 1 && t.shape[i] != group_[s.reg][full - n + i]) return false;
    return true;
  }

  bool product(const Step& s) noexcept {
    if (!has(s.other)) return true;
    int64_t p = 1;
    for (int64_t i = 0; i < value_[s.other]; ++i) p *= group_[s.other][i];
    return set_or_equal(s.reg, p);
  }

  // Whether the guard of a clause, about this parameter, switches the clause off.
  bool is_off(const Clause& c, uint8_t param) const noexcept {
    return c.guard != Clause::Guard::kNone && given(param) != (c.guard == Clause::Guard::kIf);
  }

  bool compare_float(const Step& s) const noexcept {
    const Clause& c = schema_.clauses[s.value];
    return is_off(c, s.other) || compares(args_[s.arg].u.f, c.compare, c.bound);
  }

  bool compare(const Step& s) const noexcept {
    const Clause& c = schema_.clauses[s.value];
    if (is_off(c, s.arg)) return true;
    int64_t a = 1, b = 1;
    if (s.reg != Step::kNoReg) {
      if (!has(s.reg)) return true;
      a = value_[s.reg];
    }
    if (s.other != Step::kNoReg) {
      if (!has(s.other)) return true;
      b = value_[s.other];
    }
    if (c.kind == Clause::Kind::kMultiple) return remainder(a, c.right.number * b) == 0;
    int64_t left, right;
    if (__builtin_mul_overflow(c.left.number, a, &left) ||
        __builtin_mul_overflow(c.right.number, b, &right))
      return compares(times(c.left.number, a), c.compare, times(c.right.number, b));
    return compares(left, c.compare, right);
  }

  bool self(const Step& s) noexcept {
    for (const yard_tensor_t* t : tensors_of(args_[s.arg])) {
      if ((t->facts & YARD_FACTS_PLAIN) != 0 || !overlaps_itself(*t)) continue;
      tensor_ = t;
      return false;
    }
    return true;
  }

  bool pair(const Step& s) noexcept {
    const yard_value_t &x = args_[s.arg], &y = args_[s.other];
    if (x.tag == YARD_TAG_TENSOR && y.tag == YARD_TAG_TENSOR &&
        !ranges_may_meet(*x.u.tensor, *y.u.tensor))
      return true;
    return pairs(s);
  }

  [[gnu::noinline]] bool pairs(const Step& s) noexcept {
    const auto a = tensors_of(args_[s.arg]), b = tensors_of(args_[s.other]);
    for (size_t i = 0; i < a.size(); ++i) {
      // Within one list each pair of tensors is compared once.
      for (size_t k = s.arg == s.other ? i + 1 : 0; k < b.size(); ++k) {
        if (!ranges_may_meet(*a[i], *b[k])) continue;
        overlap_ = overlap(*a[i], *b[k]);
        if (overlap_ == Overlap::kNone) continue;
        if (overlap_ != Overlap::kSame || s.value == 0) return false;
        flags_ |= static_cast<int32_t>(YARD_CALL_ALIASED);
      }
    }
    return true;
  }

  [[gnu::always_inline]] bool call_step(const Step& s) noexcept {
    switch (s.op) {
      case Step::Op::kEnum: return static_cast<uint64_t>(args_[s.arg].u.i) < s.value;
      case Step::Op::kReadable: return readable(s);
      case Step::Op::kInt: return set_or_equal(s.reg, args_[s.arg].u.i);
      case Step::Op::kDTypeSet: return !has(s.reg) || ((s.mask >> value_[s.reg]) & 1) != 0;
      case Step::Op::kProduct: return product(s);
      case Step::Op::kCompare: return compare(s);
      case Step::Op::kFloat: return compare_float(s);
      case Step::Op::kIff: return given(s.arg) == given(s.other);
      case Step::Op::kIffDTypes:
        return !has(s.reg) || given(s.arg) == (((s.mask >> value_[s.reg]) & 1) != 0);
      case Step::Op::kOr: return given(s.arg) || given(s.other);
      case Step::Op::kSelf: return self(s);
      case Step::Op::kPair: return pair(s);
      default: return false;
    }
  }

  const Schema& schema_;
  const yard_value_t* args_;
  uint64_t device_ = kNoDevice;  // facts bits of the first tensor, for all tensors
  uint64_t known_ = 0;
  int32_t flags_ = 0;
  // Set by the step that fails.
  Overlap overlap_;
  uint64_t known_before_;
  const yard_tensor_t* tensor_;
  int64_t value_[kMaxNames];
  const int64_t* group_[kMaxNames];
};

}  // namespace yard::op
