// SPDX-License-Identifier: Apache-2.0
#include "verify/parsed_call.h"

#include <fmt/format.h>

namespace yard::verification {
namespace {

ParsedTensor parsed_tensor(const yard_tensor_t& t) {
  const TensorView view(t);  // has strides even if `t` has none
  return {view.dtype(),
          {view.shape().begin(), view.shape().end()},
          {view.strides().begin(), view.strides().end()},
          op::spec_of(t).align,
          view.device()};
}

decltype(ParsedArg::value) arg_value(const op::Param& p, const yard_value_t& v) {
  switch (v.tag) {
    case YARD_TAG_TENSOR: return parsed_tensor(*v.u.tensor);
    case YARD_TAG_INT:
      if (p.kind == op::Kind::kEnum) return p.enumerators.at(static_cast<size_t>(v.u.i));
      return v.u.i;
    case YARD_TAG_FLOAT: return v.u.f;
    case YARD_TAG_BOOL: return v.u.i != 0;
    case YARD_TAG_STRING: return std::string(v.u.string, v.count);
    case YARD_TAG_LIST: {
      std::vector<ParsedTensor> list;
      for (const yard_tensor_t* t : op::tensors_of(v)) list.push_back(parsed_tensor(*t));
      return list;
    }
    default: return std::monostate();
  }
}

// Returns the range of an argument's elements, from the first clause of the schema that applies.
std::optional<ParsedArg::Range> elements_of(const op::Program& program, const op::Call& call,
                                            const op::Param& p) {
  for (const op::Clause& c : program.schema().clauses) {
    if (c.kind != op::Clause::Kind::kElements || c.left.name != p.name) continue;
    if (c.guard != op::Clause::Guard::kNone &&
        (call.args()[program.index_of(c.guard_param)].tag != YARD_TAG_NONE) !=
            (c.guard == op::Clause::Guard::kIf))
      continue;
    int64_t bound = c.right.number;
    const auto multiply = [&](const std::string& name) {
      int64_t value;
      const auto field = program.field(name);
      return name.empty() || (field && op::find(*field, call.args(), value) &&
                              !__builtin_mul_overflow(bound, value, &bound));
    };
    if (!multiply(c.right.name) || !multiply(c.factor)) continue;
    if (c.compare == op::Compare::kLt) bound = std::max(bound, INT64_MIN + 1) - 1;
    return ParsedArg::Range{c.left.number, bound};
  }
  return std::nullopt;
}

// Returns the input that an output is aliased to. In an op::Call they are one object.
std::string same_as(const op::Program& program, const op::Call& call, uint32_t out) {
  const yard_value_t& v = call.args()[out];
  if (v.tag != YARD_TAG_TENSOR || !program.schema().params[out].is_output()) return "";
  for (uint32_t in = 0; in < call.count(); ++in)
    if (in != out && call.args()[in].tag == YARD_TAG_TENSOR &&
        call.args()[in].u.tensor == v.u.tensor)
      return program.schema().params[in].name;
  return "";
}

}  // namespace

ParsedCall parsed_call(const op::Program& program, const op::Call& call) {
  ParsedCall to;
  to.op = program.name();
  to.text = op::to_string(call.to_spec(program));
  to.device = call.device(), to.flags = call.flags();
  to.labels.insert(call.labels().begin(), call.labels().end());
  for (uint32_t i = 0; i < call.count(); ++i) {
    const op::Param& p = program.schema().params[i];
    to.args.push_back({p.name, !p.is_output(), p.is_written(), arg_value(p, call.args()[i]),
                       same_as(program, call, i), elements_of(program, call, p)});
  }
  return to;
}

std::string tensor_name(const std::string& param, int item) {
  return item < 0 ? param : fmt::format("{}[{}]", param, item);
}

}  // namespace yard::verification
