// SPDX-License-Identifier: Apache-2.0
// Output shapes from inputs.
#include <fmt/format.h>

#include <algorithm>

#include "op/bindings.h"
#include "op/call_spec.h"
#include "op/program_cold.h"

namespace yard::op {
namespace {

class Inference {
 public:
  Inference(const Program& program, const yard_value_t* args)
      : program_(program), s_(program.schema()), args_(args), known_(bind_integers(s_, args)) {
    for (const bool broadcast : {false, true})
      for (size_t i = 0; i < s_.params.size(); ++i)
        if (s_.params[i].is_tensor() && !s_.params[i].is_output())
          for (const yard_tensor_t* t : Tensors(args[i])) look(s_.params[i], *t, broadcast);
  }

  Result<std::vector<OutputSpec>> run(const yard_op_t* op) {
    std::vector<OutputSpec> out;
    bool complete = true;
    for (uint8_t i : program_.outputs()) {
      OutputSpec spec;
      spec.param = i;
      const Param& p = s_.params[i];
      spec.known = p.kind == Kind::kTensor;
      Status st = dtype(p, spec);
      if (st.ok() && spec.known) {
        Result<bool> whole = shape(p, spec);
        if (whole.ok())
          complete &= *whole;
        else
          st = std::move(whole).status();
      }
      if (!st.ok()) {
        if (!p.optional) return st;
        spec.known = false;
      }
      out.push_back(spec);
    }
    if (complete) return out;
    if (Status st = ask(op, out); !st.ok()) return st;
    return out;
  }

 private:
  Status fail(const Param& p, const std::string& message) const {
    return Status(Code::kInvalidArgument, s_.name + ": output '" + p.name + "': " + message);
  }

  // Takes what a tensor says first; whether all say the same is for explain_mismatch(). A broadcast dimension
  // speaks only when no full one does, and 1 gives way to any other size.
  void look(const Param& p, const yard_tensor_t& t, bool broadcast) {
    const size_t rank = static_cast<size_t>(std::max(t.ndim, 0)), trailing = p.trailing();
    if (t.facts == 0) return;
    if (!p.variable.empty())
      known_.variables.try_emplace(p.variable, Bound<DType>{from_dlpack(t.dtype), p.name});
    if (p.has_leading() ? rank < trailing : rank != trailing) return;
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (d.name.empty() || d.broadcast != broadcast) continue;
      if (d.kind == Dim::Kind::kLeading) {
        leading(p, d, {t.shape, t.shape + (rank - trailing)});
      } else {
        const int64_t size = t.shape[rank - p.dims.size() + k];
        const int64_t value = size % d.number == 0 ? size / d.number : 1;
        const auto [it, fresh] = known_.dims.try_emplace(d.name, Bound<int64_t>{value, p.name});
        if (!fresh && broadcast && it->second.value == 1 && weak_.count(d.name) != 0)
          it->second = {value, p.name};
        if (fresh && broadcast) weak_[d.name] = true;
      }
    }
  }

  void leading(const Param& p, const Dim& d, std::vector<int64_t> dims) {
    const auto [it, fresh] = known_.groups.try_emplace(d.name);
    std::vector<int64_t>& group = it->second.value;
    if (fresh) {
      it->second = {std::move(dims), p.name};
      if (d.broadcast) weak_[d.name] = true;
      return;
    }
    if (!d.broadcast || weak_.count(d.name) == 0) return;
    if (dims.size() > group.size()) group.insert(group.begin(), dims.size() - group.size(), 1);
    for (size_t i = 0; i < dims.size(); ++i) {
      int64_t& mine = group[group.size() - dims.size() + i];
      if (mine == 1) mine = dims[i];
    }
  }

  Status dtype(const Param& p, OutputSpec& spec) const {
    spec.dtype = p.dtype;
    if (p.variable.empty()) return {};
    const auto it = known_.variables.find(p.variable);
    if (it == known_.variables.end())
      return fail(p, "no argument given says what dtype " + p.variable + " is");
    spec.dtype = it->second.value;
    return {};
  }

  // False if a dimension is left to the shape function.
  Result<bool> shape(const Param& p, OutputSpec& spec) const {
    bool whole = true;
    std::vector<int64_t> dims;
    for (const Dim& d : p.dims) {
      const auto one = known_.dims.find(d.name);
      const auto group = known_.groups.find(d.name);
      if (d.kind == Dim::Kind::kConstant) {
        dims.push_back(d.number);
      } else if (d.kind == Dim::Kind::kNamed && one != known_.dims.end()) {
        int64_t size;
        if (__builtin_mul_overflow(one->second.value, d.number, &size) || size < 0)
          return fail(p, fmt::format("{} = {} makes no size", d.name, one->second.value));
        dims.push_back(size);
      } else if (d.kind == Dim::Kind::kLeading && group != known_.groups.end()) {
        dims.insert(dims.end(), group->second.value.begin(), group->second.value.end());
      } else if (program_.needs_shape_function()) {
        whole = false;
      } else {
        return fail(p, "no argument given says what " + d.name + " is");
      }
    }
    if (!whole) return false;
    if (dims.size() > YARD_MAX_RANK)
      return fail(
          p, fmt::format("would have {} dimensions, the limit is {}", dims.size(), YARD_MAX_RANK));
    spec.shape.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), spec.shape.dims);
    return true;
  }

  Status ask(const yard_op_t* op, std::vector<OutputSpec>& out) const {
    if (!op || !op->infer)
      return Status(
          Code::kUnsupported,
          s_.name +
              ": has outputs whose shape no input gives, and the op brings no shape function");
    std::vector<yard_shape_t> shapes;
    for (const OutputSpec& o : out) shapes.push_back(o.shape);
    char error[512] = "";
    yard_call_t call{};
    call.size = sizeof call;
    call.self = op->self;
    call.error = error;
    call.error_size = sizeof error;
    const int32_t code = op->infer(&call, args_, program_.arg_count(), shapes.data(),
                                   static_cast<uint32_t>(shapes.size()));
    if (code != YARD_OK)
      return Status(Code::kInvalidArgument,
                    s_.name + ": its shape function failed" + (error[0] ? ": " : "") + error);
    for (size_t i = 0; i < out.size(); ++i) {
      const Param& p = s_.params[out[i].param];
      out[i].shape = shapes[i];
      if (!out[i].known) continue;
      if (shapes[i].rank < 0 || shapes[i].rank > YARD_MAX_RANK)
        return fail(p, fmt::format("the shape function gave rank {}", shapes[i].rank));
      for (int k = 0; k < shapes[i].rank; ++k)
        if (shapes[i].dims[k] < 0)
          return fail(p, fmt::format("the shape function gave the size {}", shapes[i].dims[k]));
    }
    return {};
  }

  const Program& program_;
  const Schema& s_;
  const yard_value_t* args_;
  Bindings known_;
  std::map<std::string, bool> weak_;  // names that only broadcast dimensions speak for
};

}  // namespace

Result<std::vector<OutputSpec>> Program::infer_outputs(const yard_value_t* args,
                                                       const yard_op_t* op) const {
  return Inference(*this, args).run(op);
}

}  // namespace yard::op
