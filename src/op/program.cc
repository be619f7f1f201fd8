// SPDX-License-Identifier: Apache-2.0
// Queries of a Program, its check by steps, and the inference of outputs from inputs.
#include "op/program.h"

#include <fmt/format.h>
#include <yard/detail/call.h>

#include <set>

#include "base/lists.h"
#include "op/step_runner.h"

namespace yard::op {

const Schema& Program::schema() const noexcept { return cold_->schema; }
std::string_view Program::signature() const noexcept { return cold_->signature; }
std::span<const uint8_t> Program::outputs() const noexcept { return cold_->outputs; }
bool Program::has_inout() const noexcept { return cold_->has_inout; }
bool Program::has_aliases() const noexcept { return !cold_->aliases.empty(); }

int32_t Program::fits_steps(const yard_value_t* args) const noexcept {
  StepRunner runner(schema(), args);
  return runner.run(cold_->steps) == nullptr ? runner.flags() : -1;
}

bool Program::checks_scalars() const noexcept {
  return std::ranges::any_of(cold_->steps, [](const Step& s) {
    return s.op == Step::Op::kEnum || s.op == Step::Op::kInt || s.op == Step::Op::kFloat;
  });
}

bool Program::writes_nothing(const yard_value_t* args) const noexcept {
  bool any = false;
  for (uint32_t i = 0; i < arg_count_; ++i) {
    if (!schema().params[i].is_written()) continue;
    for (const yard_tensor_t* t : tensors_of(args[i])) {
      if ((t->facts >> YARD_FACTS_SPAN_SHIFT) != 0) return false;
      any = true;
    }
  }
  return any;
}

bool Program::may_alias(uint32_t output, uint32_t input) const noexcept {
  return base::contains(cold_->aliases, std::pair<uint8_t, uint8_t>(output, input));
}

std::optional<Field> Program::field(std::string_view name) const {
  const auto known = cold_->fields.find(name);
  return known != cold_->fields.end() ? std::optional(known->second) : std::nullopt;
}

std::vector<std::string> Program::field_names() const { return base::keys(cold_->fields); }

bool Program::pointers_fit(const yard_value_t& v) noexcept {
  if (v.count == 0) return true;
  if (v.tag == YARD_TAG_STRING) return v.u.string != nullptr;
  return v.u.list != nullptr && std::all_of(v.u.list, v.u.list + v.count,
                                            [](const yard_tensor_t* t) { return t != nullptr; });
}

namespace {

class Inference {
 public:
  Inference(const Program& program, const yard_value_t* args)
      : program_(program), s_(program.schema()), args_(args) {
    for (size_t i = 0; i < s_.params.size(); ++i)
      if (s_.params[i].kind == Kind::kInt && args[i].tag == YARD_TAG_INT)
        sizes_[s_.params[i].name] = {args[i].u.i};
    for (const bool broadcast : {false, true})
      for (size_t i = 0; i < s_.params.size(); ++i)
        if (s_.params[i].is_tensor() && !s_.params[i].is_output())
          for (const yard_tensor_t* t : tensors_of(args[i])) bind(s_.params[i], *t, broadcast);
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
      if (st.ok() && spec.known) st = shape(p, spec, complete);
      if (!st.ok()) {
        if (!p.optional) return st;
        spec.known = false;
      }
      out.push_back(spec);
    }
    if (complete) return out;
    YARD_RETURN_IF_ERROR(call_shape_function(op, out));
    return out;
  }

 private:
  Status fail(const Param& p, const std::string& message) const {
    return Status(Code::kInvalidArgument, s_.name + ": output '" + p.name + "': " + message);
  }

  // Sets the names in a tensor's type that are unset. Tensors may disagree; that is reported
  // elsewhere.
  void bind(const Param& p, const yard_tensor_t& t, bool broadcast) {
    const size_t rank = static_cast<size_t>(std::max(t.ndim, 0)), trailing = p.trailing();
    if (t.facts == 0) return;
    if (!p.variable.empty()) variables_.try_emplace(p.variable, from_dlpack(t.dtype));
    if (p.has_leading() ? rank < trailing : rank != trailing) return;
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const Dim& d = p.dims[k];
      if (d.name.empty() || d.broadcast != broadcast) continue;
      if (d.kind == Dim::Kind::kLeading) {
        bind(d, {t.shape, t.shape + (rank - trailing)});
        continue;
      }
      const int64_t size = t.shape[rank - p.dims.size() + k];
      bind(d, {size % d.number == 0 ? size / d.number : 1});
    }
  }

  // Broadcast dimensions set a name only if no full one does. Among them, 1 gives way to any size.
  void bind(const Dim& d, const std::vector<int64_t>& sizes) {
    const auto [it, fresh] = sizes_.try_emplace(d.name, sizes);
    std::vector<int64_t>& group = it->second;
    if (fresh && d.broadcast) from_broadcast_.insert(d.name);
    if (fresh || !from_broadcast_.contains(d.name)) return;
    if (sizes.size() > group.size()) group.insert(group.begin(), sizes.size() - group.size(), 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = group[group.size() - sizes.size() + i];
      if (size == 1) size = sizes[i];
    }
  }

  Status dtype(const Param& p, OutputSpec& spec) const {
    const auto found = variables_.find(p.variable);
    const auto* const dtypes = s_.dtypes_of(p.variable);
    if (p.variable.empty())
      spec.dtype = p.dtype;
    else if (found != variables_.end())
      spec.dtype = found->second;
    else if (dtypes != nullptr && !s_.reads_variable(p.variable))
      spec.dtype = dtypes->front();
    else
      return fail(p, "no given argument determines the dtype " + p.variable);
    return {};
  }

  // Clears `complete` if a dimension is left to the shape function.
  Status shape(const Param& p, OutputSpec& spec, bool& complete) const {
    std::vector<int64_t> dims;
    for (const Dim& d : p.dims) {
      if (d.kind == Dim::Kind::kConstant) {
        dims.push_back(d.number);
      } else if (const auto known = sizes_.find(d.name); known != sizes_.end()) {
        for (const int64_t value : known->second) {
          int64_t& size = dims.emplace_back();
          if (__builtin_mul_overflow(value, d.number, &size) || size < 0)
            return fail(p, fmt::format("{} = {} gives no valid size", d.name, value));
        }
      } else if (program_.needs_shape_function()) {
        complete = false;
        return {};
      } else {
        return fail(p, "no given argument determines " + d.name);
      }
    }
    if (dims.size() > YARD_MAX_RANK)
      return fail(
          p, fmt::format("would have {} dimensions, the limit is {}", dims.size(), YARD_MAX_RANK));
    spec.shape.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), spec.shape.dims);
    return {};
  }

  Status call_shape_function(const yard_op_t* op, std::vector<OutputSpec>& out) const {
    if (!op || !op->infer)
      return Status(Code::kUnsupported,
                    s_.name +
                        ": the inputs do not determine the shape of every output, and the op "
                        "has no shape function; give the outputs");
    std::vector<yard_shape_t> shapes;
    for (const OutputSpec& o : out) shapes.push_back(o.shape);
    char error[yard::detail::ThreadHead::kErrorBytes];
    yard_call_t call;
    yard::detail::start_call(call, error, 0, nullptr, op->self);
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
  std::map<std::string, std::vector<int64_t>> sizes_;  // leading groups may have several each
  std::map<std::string, DType> variables_;
  std::set<std::string> from_broadcast_;  // names that only broadcast dimensions set
};

// Whether an input, or an int parameter, binds every dimension of an output.
bool has_bound_dims(const Schema& s, const Param& output) {
  const auto is_bound = [&](const Dim& d) {
    if (d.name.empty() || s.find(d.name) != nullptr) return d.kind != Dim::Kind::kAny;
    return std::ranges::any_of(s.params, [&](const Param& p) {
      return !p.is_output() && std::ranges::find(p.dims, d.name, &Dim::name) != p.dims.end();
    });
  };
  return std::ranges::all_of(output.dims, is_bound);
}

}  // namespace

bool Program::needs_shape_function() const noexcept {
  const Schema& s = schema();
  return std::ranges::any_of(s.params, [&](const Param& p) {
    return p.is_output() && p.kind == Kind::kTensor && !has_bound_dims(s, p);
  });
}

bool Program::inputs_determine(uint32_t output) const noexcept {
  const Schema& s = schema();
  const Param& p = s.params[output];
  return has_bound_dims(s, p) && (p.variable.empty() || s.reads_variable(p.variable));
}

Result<std::vector<OutputSpec>> Program::infer_outputs(const yard_value_t* args,
                                                       const yard_op_t* op) const {
  return Inference(*this, args).run(op);
}

}  // namespace yard::op
