// SPDX-License-Identifier: Apache-2.0
// Messages for calls that do not fit: a description of the first tag or step that fails.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "op/call_spec.h"
#include "op/steps.h"

namespace yard::op {
namespace {

std::string value_text(const yard_value_t& v) {
  switch (v.tag) {
    case YARD_TAG_NONE: return "nothing";
    case YARD_TAG_TENSOR: return v.u.tensor ? "a tensor " + brief(*v.u.tensor) : "a null tensor";
    case YARD_TAG_INT: return fmt::format("the integer {}", v.u.i);
    case YARD_TAG_FLOAT: return "the number " + base::format_double(v.u.f);
    case YARD_TAG_BOOL: return v.u.i ? "true" : "false";
    case YARD_TAG_STRING: return v.u.string || v.count == 0 ? "a string" : "a null string";
    case YARD_TAG_LIST: return fmt::format("a list of {} tensors", v.count);
    default: return fmt::format("a value of unknown tag {}", v.tag);
  }
}

// Why yard_facts() is 0.
std::string unreadable(const yard_tensor_t& t) {
  if (yard_dtype_index(t.dtype) == 0)
    return fmt::format("an unknown dtype (code {}, bits {}, lanes {})", t.dtype.code, t.dtype.bits,
                       t.dtype.lanes);
  if (t.ndim < 0) return fmt::format("a negative rank ({})", t.ndim);
  if (t.ndim > YARD_MAX_RANK)
    return fmt::format("rank {}, above the limit of {}", t.ndim, YARD_MAX_RANK);
  if (t.ndim > 0 && !t.shape) return "no shape (a null pointer)";
  if (t.device.type <= 0 || t.device.type > 31 || t.device.index < 0 || t.device.index > 255)
    return fmt::format("a device out of range (type {}, index {})", t.device.type, t.device.index);
  for (int i = 0; i < t.ndim; ++i)
    if (t.shape[i] < 0) return fmt::format("a negative size ({} in dimension {})", t.shape[i], i);
  if (yard_facts(&t) == 0) return "a size that overflows 63 bits";
  return "no facts, although it could be read";
}

// A value that has the tag of its parameter but not the pointers, or another tag.
std::string tag_mismatch(const Param& p, const yard_value_t& v) {
  const std::string expected = "expected " + type_text(p) + ", ";
  if (v.tag == YARD_TAG_NONE) return expected + "but it is missing";
  if (v.tag != YARD_TAG_LIST || p.kind != Kind::kTensorList)
    return expected + "found " + value_text(v);
  if (v.u.list == nullptr) return expected + "found a null list";
  const auto null = std::find(v.u.list, v.u.list + v.count, nullptr);
  return expected + fmt::format("found a null tensor at {}", null - v.u.list);
}

// Describes the step at which a runner stopped.
class StepDescription {
 public:
  StepDescription(const ProgramCold& cold, StepRunner& runner, const yard_value_t* args)
      : cold_(cold), s_(cold.schema), runner_(runner), args_(args) {}

  std::string text(const Step& s) {
    const Param& p = s_.params[s.arg];
    switch (s.op) {
      case Step::Op::kEnum:
        return about(p, fmt::format("expected {} (0 to {}), found {}", base::one_of(p.enumerators),
                                    s.value - 1, args_[s.arg].u.i));
      case Step::Op::kReadable: return readable(p);
      case Step::Op::kDTypeSet:
        return fmt::format("argument '{}': expected {}, found {} = {}", source(s.reg),
                           to_string(s_.clauses[s.value]), cold_.names[s.reg], dtype_name(s.reg));
      case Step::Op::kCompare: return comparison(s_.clauses[s.value]);
      case Step::Op::kIff: {
        const std::string& other = s_.params[s.other].name;
        return fmt::format("expected '{}' and '{}' both or neither, found only '{}'", p.name, other,
                           args_[s.arg].tag != YARD_TAG_NONE ? p.name : other);
      }
      case Step::Op::kOr:
        return fmt::format("expected '{}' or '{}', found neither", p.name, s_.params[s.other].name);
      case Step::Op::kSelf: return self_overlap(p);
      case Step::Op::kPair: {
        const bool same = runner_.overlap_found() == Overlap::kSame;
        return about(
            p,
            fmt::format("expected memory {} '{}', found {}",
                        s.value != 0 ? "that is exactly or not at all that of" : "apart from",
                        s_.params[s.other].name, same ? "the same memory" : "some of it shared"));
      }
      default: return tensor(s);
    }
  }

 private:
  static std::string about(const Param& p, const std::string& text) {
    return "argument '" + p.name + "': " + text;
  }

  std::string readable(const Param& p) const {
    const yard_tensor_t& t = *runner_.tensor();
    if ((t.facts & YARD_FACTS_VALID) == 0)
      return about(
          p, "expected " + type_text(p) + ", found a tensor that cannot be read: " + unreadable(t));
    size_t first = 0;
    while (Tensors(args_[first]).count == 0) ++first;
    const auto device = [](const yard_tensor_t& of) {
      return to_string(Device{of.device.type, of.device.index});
    };
    return about(p, fmt::format("expected a tensor on {} like '{}', found {} on {}",
                                device(*Tensors(args_[first]).list[0]), s_.params[first].name,
                                brief(t), device(t)));
  }

  // The step and those after it that also fail for the same tensor.
  std::string tensor(const Step& first) {
    const Param& p = s_.params[first.arg];
    const yard_tensor_t& t = *runner_.tensor();
    const Step* const end = cold_.steps.data() + cold_.steps.size();
    std::string why;
    const auto add = [&](const std::string& text) {
      if (!text.empty()) why += (why.empty() ? "" : ", ") + text;
    };
    for (const Step* s = &first; s != end && s->is_for_tensor(); ++s) {
      if (s != &first && runner_.holds(*s, t)) continue;
      if (s->op != Step::Op::kType) {
        add(dim(*s, t));
        continue;
      }
      add(dtype(*s, p, t));
      const std::string rank = rank_text(*s, p, t);
      add(rank);
      if (!rank.empty()) break;  // dimensions cannot be compared
    }
    return about(p, "expected " + expected(p) + (why.empty() ? "" : " (" + why + ")") + ", found " +
                        brief(t));
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

  // A dimension or leading group that differs from the value of its name.
  std::string dim(const Step& s, const yard_tensor_t& t) const {
    if (s.op == Step::Op::kConstant) return "";
    if (s.op == Step::Op::kLeading || s.op == Step::Op::kLeadingBroadcast)
      return binding(s.reg, "[" + group_text(s.reg) + "]");
    if (!runner_.has(s.reg))
      return fmt::format("{} is no multiple of {}", t.shape[t.ndim - s.axis], s.value);
    return binding(s.reg, std::to_string(runner_.value(s.reg)));
  }

  std::string comparison(const Clause& c) const {
    std::string found;
    for (const Term* t : {&c.left, &c.right})
      if (!t->name.empty())
        found += fmt::format("{}{} = {}", found.empty() ? "" : ", ", t->name,
                             runner_.value(reg(t->name)));
    return "expected " + to_string(c) + ", found " + found;
  }

  std::string self_overlap(const Param& p) const {
    TensorSpec found = spec_of(*runner_.tensor());
    found.align = YARD_MAX_ALIGN;
    found.device.reset();
    return about(p, "is written, but some of its elements share memory: found " + to_string(found));
  }

  // "f32[8,4096]": a parameter's type with the values that were known before its tensor.
  std::string expected(const Param& p) const {
    std::string out = p.variable.empty() ? yard::to_string(p.dtype) : p.variable;
    if (const uint8_t r = reg(p.variable); known(r)) out = dtype_name(r);
    out += '[';
    bool first = true;
    for (const Dim& d : p.dims) {
      const std::string text = dim_text(d);
      if (text.empty()) continue;  // a leading group of no dimensions
      if (!first) out += ',';
      first = false;
      out += text;
    }
    return out + ']';
  }

  std::string dim_text(const Dim& d) const {
    if (d.kind == Dim::Kind::kAny) return "_";
    if (d.kind == Dim::Kind::kConstant) return std::to_string(d.number);
    const bool leading = d.kind == Dim::Kind::kLeading;
    const uint8_t r = reg(leading ? "*" + d.name : d.name);
    int64_t size;
    std::string out;
    if (leading && known(r)) {
      out = group_text(r);
      return d.broadcast && !out.empty() ? "(" + out + ")|1" : out;
    }
    if (leading)
      out = "*" + d.name;
    else if (known(r) && !__builtin_mul_overflow(runner_.value(r), d.number, &size))
      out = std::to_string(size);
    else
      out = d.number == 1 ? d.name : std::to_string(d.number) + "*" + d.name;
    return d.broadcast ? out + "|1" : out;
  }

  // kNoReg if no step uses the name.
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
  // "hidden = 4096 from 'x'"
  std::string binding(uint8_t r, const std::string& value) const {
    return fmt::format("{} = {} from '{}'", cold_.names[r], value, source(r));
  }
  // The parameter that set a register: that of the first step that could.
  const std::string& source(uint8_t r) const {
    for (const Step& s : cold_.steps)
      if (s.reg == r &&
          (s.op == Step::Op::kInt || (s.is_for_tensor() && Tensors(args_[s.arg]).count > 0)))
        return s_.params[s.arg].name;
    return s_.name;
  }

  const ProgramCold& cold_;
  const Schema& s_;
  StepRunner& runner_;
  const yard_value_t* args_;
};

std::string count_mismatch(const Schema& s, uint32_t n) {
  std::string names;
  for (const Param& p : s.params) names += (names.empty() ? "" : ", ") + p.name;
  const std::string text =
      fmt::format("takes {} arguments ({}), found {}", s.params.size(), names, n);
  return n < s.params.size() ? text + ": '" + s.params[n].name + "' is missing"
                             : text + fmt::format(": {} too many", n - s.params.size());
}

}  // namespace

Status Program::explain(const yard_value_t* args, uint32_t n, bool outputs_may_be_missing) const {
  const auto fail = [&](const std::string& text) {
    return Status(Code::kInvalidArgument, name() + ": " + text);
  };
  if (n != arg_count_) return fail(count_mismatch(schema(), n));
  for (uint32_t i = 0; i < n; ++i) {
    const Param& p = schema().params[i];
    if (tag_fits(i, args[i])) continue;
    if (outputs_may_be_missing && p.is_output() && args[i].tag == YARD_TAG_NONE) continue;
    return fail("argument '" + p.name + "': " + tag_mismatch(p, args[i]));
  }
  StepRunner runner(schema(), args);
  const Step* const failed = runner.run(cold_->steps);
  return failed == nullptr ? Status() : fail(StepDescription(*cold_, runner, args).text(*failed));
}

Status Program::explain_mismatch(const yard_value_t* args, uint32_t n) const {
  return explain(args, n, false);
}

Status Program::explain_input_mismatch(const yard_value_t* args) const {
  return explain(args, arg_count_, true);
}

}  // namespace yard::op
