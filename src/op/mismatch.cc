// SPDX-License-Identifier: Apache-2.0
// Describes why a call does not fit a schema: the first tag or step that fails.
#include <fmt/format.h>

#include "base/text.h"
#include "op/call_spec.h"
#include "op/step_runner.h"

namespace yard::op {
namespace {

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
