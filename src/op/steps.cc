// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a compiled schema (steps.h), and describes the first tag or step that fails.
#include "op/steps.h"

#include <fmt/format.h>

#include "base/text.h"
#include "op/call_spec.h"

namespace yard::op {
namespace {

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

  // One step of a kTensors group.
  bool holds(const Step& s, const yard_tensor_t& t) noexcept { return tensor_step(s, t); }

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

  [[gnu::always_inline]] bool tensor_step(const Step& s, const yard_tensor_t& t) noexcept {
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

// Returns why facts_of() is 0.
std::string unreadable(const yard_tensor_t& t) {
  constexpr const char* kOverflows = "a size that overflows 63 bits";
  if (t.dtype.code == 0 && t.dtype.bits == 0)
    return fmt::format(
        "no dtype, as in a TensorView that was made without one, with more than {} dimensions or "
        "with strides of another rank",
        YARD_MAX_RANK);
  if (t.ndim < 0) return fmt::format("a negative rank ({})", t.ndim);
  if (t.ndim > YARD_MAX_RANK)
    return fmt::format("rank {}, above the limit of {}", t.ndim, YARD_MAX_RANK);
  if (t.ndim > 0 && !t.shape) return "no shape (a null pointer)";
  if (t.device.type <= 0 || t.device.type > 31 || t.device.index < 0 || t.device.index > 255)
    return fmt::format("a device out of range (type {}, index {})", t.device.type, t.device.index);
  int64_t needed = 1;
  bool overflows = false;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0) return fmt::format("a negative size ({} in dimension {})", t.shape[i], i);
    overflows |= __builtin_mul_overflow(needed, t.shape[i], &needed);
  }
  if (overflows) return kOverflows;
  if (t.dtype.code == kTooShort.code && t.dtype.bits == kTooShort.bits)
    return fmt::format("its shape needs {} elements, and {} are there", needed,
                       reinterpret_cast<uintptr_t>(t.origin));
  if (yard_dtype_index(t.dtype) == 0)
    return fmt::format("an unknown dtype (code {}, bits {}, lanes {})", t.dtype.code, t.dtype.bits,
                       t.dtype.lanes);
  if (!has_whole_units(&t))
    return fmt::format(
        "parts of blocks: of {} the last dimension is a multiple of {} with stride 1, "
        "and other strides are multiples of it",
        to_string(from_dlpack(t.dtype)), t.dtype.lanes);
  return facts_of(&t) == 0 ? kOverflows : "no facts, although it could be read";
}

// Describes a value that does not have the tag of its parameter, or has a null pointer.
std::string tag_mismatch(const Param& p, const yard_value_t& v) {
  const std::string expected = "expected " + type_text(p) + ", got ";
  if (v.tag != YARD_TAG_LIST || p.kind != Kind::kTensorList) return expected + brief(v);
  if (v.u.list == nullptr) return expected + "a null list";
  const auto null = std::find(v.u.list, v.u.list + v.count, nullptr);
  return expected + fmt::format("a null tensor at {}", null - v.u.list);
}

// Describes the step at which a runner stopped.
class StepDescription {
 public:
  StepDescription(const ProgramCold& cold, StepRunner& runner, const yard_value_t* args)
      : cold_(cold), s_(cold.schema), runner_(runner), args_(args) {}

  std::string text(const Step& s) {
    const Param& p = s_.params[s.arg];
    const bool given = args_[s.arg].tag != YARD_TAG_NONE;
    const auto other = [&] { return s_.params[s.other].name; };
    switch (s.op) {
      case Step::Op::kEnum:
        return about(p, fmt::format("expected {} (0 to {}), got {}", base::one_of(p.enumerators),
                                    s.value - 1, args_[s.arg].u.i));
      case Step::Op::kReadable: return readable(p);
      case Step::Op::kDTypeSet:
        return fmt::format("invalid argument '{}': expected {}, got {} = {}", source(s.reg),
                           to_string(s_.clauses[s.value]), cold_.names[s.reg], dtype_name(s.reg));
      case Step::Op::kCompare: return comparison(s_.clauses[s.value]);
      case Step::Op::kFloat:
        return about(p, fmt::format("expected {}, got {}", to_string(s_.clauses[s.value]),
                                    base::format_double(args_[s.arg].u.f)));
      case Step::Op::kIff:
        return fmt::format("expected '{}' and '{}' both or neither, got only '{}'", p.name, other(),
                           given ? p.name : other());
      case Step::Op::kIffDTypes:
        return fmt::format("expected {}, got {} = {} {} '{}'", to_string(s_.clauses[s.value]),
                           cold_.names[s.reg], dtype_name(s.reg), given ? "with" : "without",
                           p.name);
      case Step::Op::kOr: return fmt::format("expected '{}' or '{}', got neither", p.name, other());
      case Step::Op::kSelf: return self_overlap(p);
      case Step::Op::kPair:
        return about(
            p,
            fmt::format("expected memory {} '{}', got {}",
                        s.value != 0 ? "that is identical to or apart from" : "apart from", other(),
                        runner_.overlap_found() == Overlap::kSame ? "the same memory"
                                                                  : "some of it shared"));
      default: return tensor(s);
    }
  }

 private:
  static std::string about(const Param& p, const std::string& text) {
    return "invalid argument '" + p.name + "': " + text;
  }

  std::string readable(const Param& p) const {
    const yard_tensor_t& t = *runner_.tensor();
    if ((t.facts & YARD_FACTS_VALID) == 0)
      return about(
          p, "expected " + type_text(p) + ", got a tensor that cannot be read: " + unreadable(t));
    size_t first = 0;
    while (tensors_of(args_[first]).empty()) ++first;
    const auto device = [](const yard_tensor_t& of) {
      return to_string(Device{of.device.type, of.device.index});
    };
    return about(p, fmt::format("expected a tensor on {} like '{}', got {} on {}",
                                device(*tensors_of(args_[first])[0]), s_.params[first].name,
                                brief(t), device(t)));
  }

  // Describes this step, and later ones that also fail for its tensor.
  std::string tensor(const Step& first) {
    const Param& p = s_.params[first.arg];
    const yard_tensor_t& t = *runner_.tensor();
    const Step* const end = cold_.steps.data() + cold_.steps.size();
    std::vector<std::string> why;
    for (const Step* s = &first; s != end && s->is_for_tensor(); ++s) {
      if (s != &first && runner_.holds(*s, t)) continue;
      why.push_back(s->op == Step::Op::kType ? dtype(*s, p, t) : dim(*s, t));
      if (s->op != Step::Op::kType) continue;
      why.push_back(rank_text(*s, p, t));
      if (!why.back().empty()) break;  // dimensions cannot be compared
    }
    std::erase(why, "");
    return about(
        p, fmt::format("expected {}{}, got {}", expected(p),
                       why.empty() ? "" : fmt::format(" ({})", fmt::join(why, ", ")), brief(t)));
  }

  std::string dtype(const Step& s, const Param& p, const yard_tensor_t& t) const {
    if (((t.facts ^ s.value) & s.mask & YARD_FACTS_DTYPE) != 0)
      return std::string("dtype ") + yard::to_string(p.dtype);
    const bool differs = s.reg != Step::kNoReg && runner_.had(s.reg) &&
                         runner_.value(s.reg) != static_cast<int64_t>(t.facts & YARD_FACTS_DTYPE);
    return differs ? binding(s.reg, dtype_name(s.reg)) : "";
  }

  static std::string rank_text(const Step& s, const Param& p, const yard_tensor_t& t) {
    if (((t.facts ^ s.value) & s.mask & YARD_FACTS_RANK) == 0 && t.ndim >= s.axis) return "";
    return fmt::format("{}{} dimension{}", p.has_leading() ? "at least " : "", p.trailing(),
                       p.trailing() == 1 ? "" : "s");
  }

  // Describes a dimension or leading group that differs from the value of its name.
  std::string dim(const Step& s, const yard_tensor_t& t) const {
    if (s.op == Step::Op::kConstant) return "";
    if (s.op == Step::Op::kLeading || s.op == Step::Op::kLeadingBroadcast)
      return binding(s.reg, "[" + group_text(s.reg) + "]");
    if (!runner_.has(s.reg))
      return fmt::format("{} is not a multiple of {}", t.shape[t.ndim - s.axis], s.value);
    return binding(s.reg, std::to_string(runner_.value(s.reg)));
  }

  std::string comparison(const Clause& c) const {
    std::vector<std::string> found;
    for (const Term* t : {&c.left, &c.right})
      if (!t->name.empty())
        found.push_back(fmt::format("{} = {}", t->name, runner_.value(reg(t->name))));
    return fmt::format("expected {}, got {}", to_string(c), fmt::join(found, ", "));
  }

  std::string self_overlap(const Param& p) const {
    TensorSpec found = spec_of(*runner_.tensor());
    found.align = YARD_MAX_ALIGN;
    found.device.reset();
    return about(p, "it is written, and some of its elements share memory: " + to_string(found));
  }

  // Returns a parameter's type with the values known before its tensor, such as "f32[8,4096]".
  std::string expected(const Param& p) const {
    std::string out = p.variable.empty() ? yard::to_string(p.dtype) : p.variable;
    if (const uint8_t r = reg(p.variable); known(r)) out = dtype_name(r);
    std::vector<std::string> dims;
    for (const Dim& d : p.dims) dims.push_back(dim_text(d));
    std::erase(dims, "");  // a leading group without dimensions
    return out + fmt::format("[{}]", fmt::join(dims, ","));
  }

  std::string dim_text(const Dim& d) const {
    const bool leading = d.kind == Dim::Kind::kLeading;
    const uint8_t r = reg(leading ? "*" + d.name : d.name);
    int64_t size;
    if (!known(r)) return to_string(d);
    if (leading) {
      const std::string group = group_text(r);
      return d.broadcast && !group.empty() ? "(" + group + ")|1" : group;
    }
    if (__builtin_mul_overflow(runner_.value(r), d.number, &size)) return to_string(d);
    return std::to_string(size) + (d.broadcast ? "|1" : "");
  }

  // Returns kNoReg if no step uses the name.
  uint8_t reg(const std::string& name) const {
    const auto it = std::find(cold_.names.begin(), cold_.names.end(), name);
    return it == cold_.names.end() ? Step::kNoReg : static_cast<uint8_t>(it - cold_.names.begin());
  }
  bool known(uint8_t r) const { return r != Step::kNoReg && runner_.had(r); }
  const char* dtype_name(uint8_t r) const {
    return yard::to_string(static_cast<DType>(runner_.value(r)));
  }
  std::string group_text(uint8_t r) const {
    const int64_t* const dims = runner_.group(r);
    return fmt::format("{}", fmt::join(dims, dims + runner_.value(r), ","));
  }
  // Returns text such as "hidden = 4096 from 'x'".
  std::string binding(uint8_t r, const std::string& value) const {
    return fmt::format("{} = {} from '{}'", cold_.names[r], value, source(r));
  }
  // Returns the parameter that set a register: the parameter of the first step that could.
  const std::string& source(uint8_t r) const {
    for (const Step& s : cold_.steps)
      if (s.reg == r &&
          (s.op == Step::Op::kInt || (s.is_for_tensor() && !tensors_of(args_[s.arg]).empty())))
        return s_.params[s.arg].name;
    return s_.name;
  }

  const ProgramCold& cold_;
  const Schema& s_;
  StepRunner& runner_;
  const yard_value_t* args_;
};

std::string count_mismatch(const Schema& s, uint32_t n) {
  return fmt::format("takes {} arguments ({}), got {}: {}", s.params.size(),
                     fmt::join(s.param_names(), ", "), n,
                     n < s.params.size() ? "'" + s.params[n].name + "' is missing"
                                         : fmt::format("{} too many", n - s.params.size()));
}

}  // namespace

int32_t Program::fits_steps(const yard_value_t* args) const noexcept {
  StepRunner runner(schema(), args);
  return runner.run(cold_->steps) == nullptr ? runner.flags() : -1;
}

Status Program::explain_mismatch(const yard_value_t* args, uint32_t n,
                                 bool outputs_may_be_missing) const {
  const auto fail = [&](const std::string& text) {
    return Status(Code::kInvalidArgument, name() + ": " + text);
  };
  if (n != arg_count_) return fail(count_mismatch(schema(), n));
  for (uint32_t i = 0; i < n; ++i) {
    const Param& p = schema().params[i];
    if (tag_fits(i, args[i])) continue;
    if (outputs_may_be_missing && p.is_output() && args[i].tag == YARD_TAG_NONE) continue;
    return fail("invalid argument '" + p.name + "': " + tag_mismatch(p, args[i]));
  }
  StepRunner runner(schema(), args);
  const Step* const failed = runner.run(cold_->steps);
  return failed == nullptr ? Status() : fail(StepDescription(*cold_, runner, args).text(*failed));
}

}  // namespace yard::op
