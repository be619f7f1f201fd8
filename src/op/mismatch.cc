// SPDX-License-Identifier: Apache-2.0
// What is wrong with a call, in words. Walks the schema itself, independently of the compiled check;
// a test holds the two to the same verdict.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "op/bindings.h"
#include "op/call_spec.h"
#include "op/overlap.h"
#include "op/program_cold.h"

namespace yard::op {
namespace {

std::string kind_text(const yard_value_t& v) {
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

// Why yard_facts() could not read it.
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

class Explainer {
 public:
  Explainer(const Program& program, const yard_value_t* args, uint32_t n, bool inputs_only)
      : program_(program), s_(program.schema()), args_(args), n_(n), inputs_only_(inputs_only) {}

  Status run() {
    if (!count() || !kinds() || !readable() || !devices()) return std::move(status_);
    known_ = bind_integers(s_, args_);
    // Inputs say what the names are; among them those that are always there. Outputs follow.
    for (const int pass : {0, 1, 2, 3}) {
      for (size_t i = 0; i < s_.params.size(); ++i) {
        const Param& p = s_.params[i];
        const bool certain = p.kind == Kind::kTensor && !p.optional;
        if (p.is_tensor() && (p.is_output() ? 2 : 0) + (certain ? 0 : 1) == pass)
          for (const yard_tensor_t* t : Tensors(args_[i]))
            if (!tensor(p, *t)) return std::move(status_);
      }
    }
    for (size_t i = 0; i < s_.params.size(); ++i)
      for (const yard_tensor_t* t : Tensors(args_[i]))
        if (!spread(s_.params[i], *t)) return std::move(status_);
    for (const Clause& c : s_.clauses)
      if (!clause(c)) return std::move(status_);
    overlaps();
    return std::move(status_);
  }

 private:
  bool fail(std::string message) {
    status_ = Status(Code::kInvalidArgument, s_.name + ": " + std::move(message));
    return false;
  }
  bool fail(const Param& p, const std::string& message) {
    return fail("argument '" + p.name + "': " + message);
  }
  bool given(const std::string& param) const {
    return args_[s_.index_of(param)].tag != YARD_TAG_NONE;
  }

  bool count() {
    if (n_ == s_.params.size()) return true;
    std::string names;
    for (const Param& p : s_.params) names += (names.empty() ? "" : ", ") + p.name;
    std::string what =
        fmt::format("takes {} arguments ({}), found {}", s_.params.size(), names, n_);
    if (n_ < s_.params.size()) return fail(what + ": '" + s_.params[n_].name + "' is missing");
    return fail(what + fmt::format(": {} too many", n_ - s_.params.size()));
  }

  bool kinds() {
    static constexpr uint32_t kTags[] = {YARD_TAG_TENSOR, YARD_TAG_LIST, YARD_TAG_INT,
                                         YARD_TAG_FLOAT,  YARD_TAG_BOOL, YARD_TAG_STRING,
                                         YARD_TAG_INT};
    for (size_t i = 0; i < s_.params.size(); ++i) {
      const Param& p = s_.params[i];
      const yard_value_t& v = args_[i];
      if (v.tag == YARD_TAG_NONE && (p.optional || (inputs_only_ && p.is_output()))) continue;
      if (v.tag == YARD_TAG_NONE)
        return fail(p, "expected " + type_text(p) + ", but it is missing");
      bool fits = v.tag == kTags[static_cast<size_t>(p.kind)];
      if (fits && p.kind == Kind::kTensor) fits = v.u.tensor != nullptr;
      if (fits && p.kind == Kind::kString) fits = v.count == 0 || v.u.string != nullptr;
      if (!fits) return fail(p, "expected " + type_text(p) + ", found " + kind_text(v));
      if (p.kind == Kind::kTensorList && !list(p, v)) return false;
      if (p.kind == Kind::kEnum && static_cast<uint64_t>(v.u.i) >= p.enumerators.size())
        return fail(p, fmt::format("expected {} (0 to {}), found {}", base::one_of(p.enumerators),
                                   p.enumerators.size() - 1, v.u.i));
    }
    return true;
  }

  bool list(const Param& p, const yard_value_t& v) {
    if (v.count > 0 && !v.u.list)
      return fail(p, "expected " + type_text(p) + ", found a null list");
    for (uint32_t k = 0; k < v.count; ++k)
      if (!v.u.list[k])
        return fail(p, fmt::format("expected {}, found a null tensor at {}", type_text(p), k));
    return true;
  }

  bool readable() {
    for (size_t i = 0; i < s_.params.size(); ++i)
      for (const yard_tensor_t* t : Tensors(args_[i]))
        if (t->facts == 0)
          return fail(s_.params[i], "expected " + type_text(s_.params[i]) +
                                        ", found a tensor that cannot be read: " + unreadable(*t));
    return true;
  }

  bool devices() {
    const Param* first = nullptr;
    Device device;
    for (size_t i = 0; i < s_.params.size(); ++i) {
      for (const yard_tensor_t* t : Tensors(args_[i])) {
        const Device d{t->device.type, t->device.index};
        if (!first) {
          first = &s_.params[i];
          device = d;
        } else if (!(d == device)) {
          return fail(s_.params[i],
                      fmt::format("expected a tensor on {} like '{}', found {} on {}",
                                  to_string(device), first->name, brief(*t), to_string(d)));
        }
      }
    }
    return true;
  }

  // Binds what p's dtype and dimensions say, or compares with what others said.
  bool tensor(const Param& p, const yard_tensor_t& t) {
    std::string why;
    const auto because = [&](std::string text) {
      why += (why.empty() ? "" : ", ") + std::move(text);
    };
    const Bindings before = known_;
    bool good = dtype(p, t, because);
    const auto rank = static_cast<size_t>(t.ndim);
    const size_t trailing = p.trailing();
    if (p.has_leading() ? rank < trailing : rank != trailing) {
      because(fmt::format("{}{} dimension{}", p.has_leading() ? "at least " : "", trailing,
                          trailing == 1 ? "" : "s"));
      good = false;
    } else {
      for (size_t k = 0; k < p.dims.size(); ++k) {
        const Dim& d = p.dims[k];
        if (d.broadcast) continue;
        good &= d.kind == Dim::Kind::kLeading
                    ? leading(p, d, t, because)
                    : dim(p, d, t.shape[rank - p.dims.size() + k], because);
      }
    }
    return good || explain_mismatch(p, t, before, why);
  }

  bool explain_mismatch(const Param& p, const yard_tensor_t& t, const Bindings& known,
                        const std::string& why) {
    return fail(p, "expected " + expected_text(p, known) + (why.empty() ? "" : " (" + why + ")") +
                       ", found " + brief(t));
  }

  template <class Because>
  bool dtype(const Param& p, const yard_tensor_t& t, const Because& because) {
    const DType found = from_dlpack(t.dtype);
    if (p.variable.empty()) {
      if (found == p.dtype) return true;
      because(std::string("dtype ") + to_string(p.dtype));
      return false;
    }
    const auto [it, fresh] = known_.variables.try_emplace(p.variable, Bound<DType>{found, p.name});
    if (!fresh && it->second.value != found) {
      because(fmt::format("{} = {} from '{}'", p.variable, to_string(it->second.value),
                          it->second.from));
      return false;
    }
    return true;
  }

  template <class Because>
  bool leading(const Param& p, const Dim& d, const yard_tensor_t& t, const Because& because) {
    std::vector<int64_t> dims(t.shape, t.shape + (static_cast<size_t>(t.ndim) - p.trailing()));
    const auto it = known_.groups.find(d.name);
    if (it == known_.groups.end()) {
      known_.groups[d.name] = {std::move(dims), p.name};
      return true;
    }
    if (it->second.value == dims) return true;
    because(fmt::format("*{} = [{}] from '{}'", d.name, fmt::join(it->second.value, ","),
                        it->second.from));
    return false;
  }

  template <class Because>
  bool dim(const Param& p, const Dim& d, int64_t size, const Because& because) {
    if (d.kind == Dim::Kind::kAny || (d.kind == Dim::Kind::kConstant && size == d.number))
      return true;
    if (d.kind == Dim::Kind::kConstant) return false;
    const auto it = known_.dims.find(d.name);
    if (it != known_.dims.end()) {
      if (times(it->second.value, d.number) == size) return true;
      because(fmt::format("{} = {} from '{}'", d.name, it->second.value, it->second.from));
      return false;
    }
    if (size % d.number != 0) {
      because(fmt::format("{} is no multiple of {}", size, d.number));
      return false;
    }
    known_.dims[d.name] = {size / d.number, p.name};
    return true;
  }

  // Dimensions that broadcast, when everything that is bound is known.
  bool spread(const Param& p, const yard_tensor_t& t) {
    const auto rank = static_cast<size_t>(t.ndim);
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (!d.broadcast) continue;
      if (d.kind == Dim::Kind::kNamed) {
        const int64_t size = t.shape[rank - p.dims.size() + k];
        const auto it = known_.dims.find(d.name);
        if (it == known_.dims.end()) continue;  // only an output that is still missing says it
        const Bound<int64_t>& b = it->second;
        if (size != 1 && times(b.value, d.number) != size)
          return explain_mismatch(p, t, known_,
                                  fmt::format("{} = {} from '{}'", d.name, b.value, b.from));
        continue;
      }
      const auto it = known_.groups.find(d.name);
      if (it == known_.groups.end()) continue;
      const auto& b = it->second;
      const size_t n = rank - p.trailing(), wide = b.value.size();
      bool good = n <= wide;
      for (size_t i = 0; good && i < n; ++i)
        good = t.shape[i] == 1 || t.shape[i] == b.value[wide - n + i];
      if (!good)
        return explain_mismatch(
            p, t, known_,
            fmt::format("*{} = [{}] from '{}'", d.name, fmt::join(b.value, ","), b.from));
    }
    return true;
  }

  bool clause(const Clause& c) {
    switch (c.kind) {
      case Clause::Kind::kDTypes: {
        const auto it = known_.variables.find(c.left.name);
        if (it == known_.variables.end()) return true;
        if (std::find(c.dtypes.begin(), c.dtypes.end(), it->second.value) != c.dtypes.end())
          return true;
        return fail(fmt::format("argument '{}': expected {}, found {} = {}", it->second.from,
                                to_string(c), c.left.name, yard::to_string(it->second.value)));
      }
      case Clause::Kind::kIff:
        if (given(c.left.name) == given(c.right.name)) return true;
        return fail(fmt::format("expected '{}' and '{}' both or neither, found only '{}'",
                                c.left.name, c.right.name,
                                given(c.left.name) ? c.left.name : c.right.name));
      case Clause::Kind::kOr:
        if (given(c.left.name) || given(c.right.name)) return true;
        return fail(fmt::format("expected '{}' or '{}', found neither", c.left.name, c.right.name));
      case Clause::Kind::kMayAlias: return true;
      default: return comparison(c);
    }
  }

  bool comparison(const Clause& c) {
    if (c.guard != Clause::Guard::kNone && given(c.guard_param) != (c.guard == Clause::Guard::kIf))
      return true;
    std::string found;
    Wide side[2];
    const Term* terms[] = {&c.left, &c.right};
    for (int i = 0; i < 2; ++i) {
      side[i] = terms[i]->number;
      if (terms[i]->name.empty()) continue;
      const auto value = known_.number(terms[i]->name);
      if (!value) return true;
      side[i] = times(side[i], *value);
      found += fmt::format("{}{} = {}", found.empty() ? "" : ", ", terms[i]->name, *value);
    }
    const bool good = c.kind == Clause::Kind::kMultiple ? side[0] % side[1] == 0
                                                        : holds(side[0], c.compare, side[1]);
    return good || fail("expected " + to_string(c) + ", found " + found);
  }

  void overlaps() {
    for (size_t w = 0; w < s_.params.size(); ++w) {
      const Param& p = s_.params[w];
      if (!p.is_written()) continue;
      for (const yard_tensor_t* t : Tensors(args_[w])) {
        if (overlaps_itself(*t)) {
          TensorSpec found = spec_of(*t);
          found.align = YARD_MAX_ALIGN;
          found.device.reset();
          fail(p, "is written, but some of its elements share memory: found " + to_string(found));
          return;
        }
      }
      for (size_t o = 0; o < s_.params.size(); ++o)
        if (!pair(w, o)) return;
    }
  }

  bool pair(size_t w, size_t o) {
    const Tensors a(args_[w]), b(args_[o]);
    for (uint32_t i = 0; i < a.count; ++i) {
      for (uint32_t k = w == o ? i + 1 : 0; k < b.count; ++k) {
        const Overlap found = overlap(*a.list[i], *b.list[k]);
        if (found == Overlap::kNone) continue;
        const bool allowed =
            program_.may_alias(static_cast<uint32_t>(w), static_cast<uint32_t>(o)) ||
            program_.may_alias(static_cast<uint32_t>(o), static_cast<uint32_t>(w));
        if (found == Overlap::kSame && allowed) continue;
        return fail(s_.params[w],
                    fmt::format("expected memory {} '{}', found {}",
                                allowed ? "that is exactly or not at all that of" : "apart from",
                                s_.params[o].name,
                                found == Overlap::kSame ? "the same memory" : "some of it shared"));
      }
    }
    return true;
  }

  const Program& program_;
  const Schema& s_;
  const yard_value_t* args_;
  uint32_t n_;
  bool inputs_only_;
  Bindings known_;
  Status status_;
};

}  // namespace

Status Program::explain_mismatch(const yard_value_t* args, uint32_t n) const {
  return Explainer(*this, args, n, false).run();
}

Status Program::explain_input_mismatch(const yard_value_t* args) const {
  return Explainer(*this, args, arg_count_, true).run();
}

}  // namespace yard::op
