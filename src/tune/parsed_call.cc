// SPDX-License-Identifier: Apache-2.0
// Calls as plain data for tools and embedding programs: yard/call_spec.h.
#include "tune/parsed_call.h"

namespace yard::tune {
namespace {

ParsedTensor tensor(const yard_tensor_t& t) {
  const op::TensorSpec spec = op::spec_of(t);
  ParsedTensor to;
  to.dtype = spec.dtype, to.shape = spec.shape, to.align = spec.align;
  to.device = {t.device.type, t.device.index};
  to.strides.assign(t.strides, t.strides + t.ndim);
  return to;
}

decltype(ParsedArg::value) value(const op::Param& p, const yard_value_t& v) {
  switch (v.tag) {
    case YARD_TAG_TENSOR: return tensor(*v.u.tensor);
    case YARD_TAG_INT:
      if (p.kind == op::Kind::kEnum) return p.enumerators.at(static_cast<size_t>(v.u.i));
      return v.u.i;
    case YARD_TAG_FLOAT: return v.u.f;
    case YARD_TAG_BOOL: return v.u.i != 0;
    case YARD_TAG_STRING: return std::string(v.u.string, v.count);
    case YARD_TAG_LIST: {
      std::vector<ParsedTensor> list;
      for (uint32_t i = 0; i < v.count; ++i) list.push_back(tensor(*v.u.list[i]));
      return list;
    }
    default: return std::monostate();
  }
}

// The input that an output is, in calls made from text: they share the tensor itself.
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
    to.args.push_back({p.name, !p.is_output(), p.is_written(), value(p, call.args()[i]),
                       same_as(program, call, i)});
  }
  return to;
}

}  // namespace yard::tune
