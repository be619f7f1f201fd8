// SPDX-License-Identifier: Apache-2.0
#include "op/call.h"

#include "base/results.h"
#include "op/bind.h"

namespace yard::op {
namespace {

TensorSpec compact(const OutputSpec& output) {
  return {output.dtype, {output.shape.dims, output.shape.dims + output.shape.rank}};
}

SpecValue spec_value(const Param& p, const yard_value_t& v, Device call_device) {
  const auto tensor = [&](const yard_tensor_t& t) {
    TensorSpec s = spec_of(t);
    if (*s.device == call_device) s.device.reset();
    return s;
  };
  switch (v.tag) {
    case YARD_TAG_TENSOR: return {tensor(*v.u.tensor)};
    case YARD_TAG_FLOAT: return {shortest_float(v.u.f)};
    case YARD_TAG_BOOL: return {v.u.i != 0};
    case YARD_TAG_STRING: return {std::string(v.u.string, v.count)};
    case YARD_TAG_LIST: {
      std::vector<TensorSpec> list;
      for (const yard_tensor_t* t : tensors_of(v)) list.push_back(tensor(*t));
      return {std::move(list)};
    }
    default:
      if (p.kind == Kind::kEnum) return {Word{p.enumerators.at(static_cast<size_t>(v.u.i))}};
      return {v.u.i};
  }
}

}  // namespace

class CallBuilder {
 public:
  explicit CallBuilder(const Program& program)
      : program_(program), s_(program.schema()), body_(std::make_shared<Call::Body>()) {
    body_->count = program.arg_count();
  }

  Result<Call> from_spec(const CallSpec& spec, const yard_op_t* op) {
    if (spec.op != s_.name)
      return Status(Code::kInvalidArgument,
                    "invalid call: expected op '" + s_.name + "', got '" + spec.op + "'");
    body_->device = spec.device;
    body_->flags = spec.flags & ~YARD_CALL_ALIASED;
    body_->labels = spec.labels;
    std::vector<Given> given;
    for (const SpecArg& a : spec.args)
      if (!std::holds_alternative<SameAs>(a.value.v)) given.push_back({a.name, value(a.value)});
    YARD_ASSIGN_OR_RETURN(const Arguments bound, op::bind(program_, given, Positional::kInputs));
    std::copy(bound.values, bound.values + bound.count, body_->args);
    // Default strings are borrowed from the program, which this call may outlive.
    for (uint32_t i = 0; i < body_->count; ++i)
      if (yard_value_t& v = body_->args[i]; v.tag == YARD_TAG_STRING)
        v = text({v.u.string, v.count});
    for (const SpecArg& a : spec.args)
      if (const auto* same = std::get_if<SameAs>(&a.value.v))
        YARD_RETURN_IF_ERROR(alias(a.name, same->name));
    YARD_RETURN_IF_ERROR(program_.explain_mismatch(body_->args, body_->count, true));
    YARD_RETURN_IF_ERROR(outputs(op));
    YARD_RETURN_IF_ERROR(program_.explain_mismatch(body_->args, body_->count));
    find_device();
    return Call(std::move(body_));
  }

  Call capture(const yard_value_t* args, uint32_t flags, Labels labels) {
    body_->flags = flags & ~YARD_CALL_ALIASED;
    body_->labels = std::move(labels);
    for (uint32_t i = 0; i < body_->count; ++i) {
      yard_value_t& v = body_->args[i] = args[i];
      if (v.tag == YARD_TAG_TENSOR) v.u.tensor = tensor(spec_of(*v.u.tensor));
      if (v.tag == YARD_TAG_STRING) v = text({v.u.string, v.count});
      if (v.tag != YARD_TAG_LIST) continue;
      auto& list = body_->lists.emplace_back();
      for (const yard_tensor_t* t : tensors_of(v)) list.push_back(tensor(spec_of(*t)));
      v.u.list = list.data();
    }
    for (uint8_t out : program_.outputs())
      for (uint32_t in = 0; in < body_->count; ++in)
        if (program_.may_alias(out, in) && same(args[out], args[in])) {
          body_->args[out] = body_->args[in];
          body_->flags |= YARD_CALL_ALIASED;
        }
    find_device();
    return Call(std::move(body_));
  }

 private:
  Status fail(const std::string& param, const std::string& message) const {
    return Status(Code::kInvalidArgument, s_.name + ": argument '" + param + "': " + message);
  }

  const yard_tensor_t* tensor(const TensorSpec& spec) {
    Call::Tensor& kept = body_->tensors.emplace_back();
    const Device device = spec.device.value_or(body_->device);
    kept.t.device = {device.type, device.index};
    kept.t.dtype = to_dlpack(spec.dtype);
    // A rank that is too large is kept for the check to report.
    kept.t.ndim = static_cast<int32_t>(spec.shape.size());
    const size_t rank = std::min<size_t>(spec.shape.size(), YARD_MAX_RANK);
    kept.t.shape = kept.dims;
    kept.t.strides = kept.dims + YARD_MAX_RANK;
    uint64_t compact = 1;
    for (size_t i = rank; i-- > 0;) {
      kept.dims[i] = spec.shape[i];
      const bool given = spec.strides.size() == spec.shape.size();
      kept.dims[YARD_MAX_RANK + i] = given ? spec.strides[i] : static_cast<int64_t>(compact);
      compact *= static_cast<uint64_t>(std::max<int64_t>(spec.shape[i], 1));
    }
    // Without data the offset is the address, so it gives the alignment.
    kept.t.byte_offset = spec.align < YARD_MAX_ALIGN ? spec.align : 0;
    kept.t.facts = facts_of(&kept.t);
    return &kept.t;
  }

  yard_value_t text(std::string_view s) { return scalar(body_->strings.emplace_back(s)); }

  yard_value_t value(const SpecValue& value) {
    if (const auto* i = std::get_if<int64_t>(&value.v)) return scalar(*i);
    if (const auto* f = std::get_if<double>(&value.v)) return scalar(*f);
    if (const auto* b = std::get_if<bool>(&value.v)) return scalar(*b);
    if (const auto* s = std::get_if<std::string>(&value.v)) return text(*s);
    if (const auto* w = std::get_if<Word>(&value.v))
      return w->text == "none" ? yard_value_t{} : text(w->text);
    if (const auto* t = std::get_if<TensorSpec>(&value.v))
      return {YARD_TAG_TENSOR, 0, {.tensor = tensor(*t)}};
    auto& list = body_->lists.emplace_back();
    for (const TensorSpec& t : std::get<std::vector<TensorSpec>>(value.v))
      list.push_back(tensor(t));
    return {YARD_TAG_LIST, static_cast<uint32_t>(list.size()), {.list = list.data()}};
  }

  Status alias(const std::string& output, const std::string& input) {
    const int out = s_.index_of(output), in = s_.index_of(input);
    if (const Param* const p = s_.find(output); p == nullptr || !p->is_output())
      return fail(output, "only an output given by name can be '&" + input + "'");
    if (in < 0 || !program_.may_alias(static_cast<uint32_t>(out), static_cast<uint32_t>(in)))
      return fail(output, "the schema has no clause '" + output + " may_alias " + input + "'");
    if (body_->args[out].tag != YARD_TAG_NONE) return fail(output, "is given twice");
    if (body_->args[in].tag != YARD_TAG_TENSOR)
      return fail(output, "'" + input + "' is not a tensor in this call");
    body_->args[out] = body_->args[in];
    if (has_elements(*body_->args[in].u.tensor)) body_->flags |= YARD_CALL_ALIASED;
    return {};
  }

  // Fills in missing outputs, which are compact and on the device of the inputs.
  Status outputs(const yard_op_t* op) {
    const auto missing = [&](uint32_t i) {
      return body_->args[i].tag == YARD_TAG_NONE && !s_.params[i].optional;
    };
    if (std::ranges::none_of(program_.outputs(), missing)) return {};
    YARD_ASSIGN_OR_RETURN(const auto inferred, program_.infer_outputs(body_->args, op));
    find_device();
    for (const OutputSpec& o : inferred) {
      const Param& p = s_.params[o.param];
      if (!missing(o.param)) continue;
      if (!o.known) return fail(p.name, "a list of outputs cannot be inferred: give it by name");
      body_->args[o.param].tag = YARD_TAG_TENSOR;
      body_->args[o.param].u.tensor = tensor(compact(o));
    }
    return {};
  }

  void find_device() {
    for (uint32_t i = 0; i < body_->count; ++i) {
      for (const yard_tensor_t* t : tensors_of(body_->args[i])) {
        body_->device = {t->device.type, t->device.index};
        return;
      }
    }
  }

  static bool has_elements(const yard_tensor_t& t) { return t.facts >> YARD_FACTS_SPAN_SHIFT != 0; }

  static bool same(const yard_value_t& a, const yard_value_t& b) {
    if (a.tag != YARD_TAG_TENSOR || b.tag != YARD_TAG_TENSOR) return false;
    // As in fits(), tensors without elements share nothing. Tensors without data are the same if
    // they are the same object.
    return (a.u.tensor == b.u.tensor && has_elements(*a.u.tensor)) ||
           overlap(*a.u.tensor, *b.u.tensor) == Overlap::kSame;
  }

  const Program& program_;
  const Schema& s_;
  std::shared_ptr<Call::Body> body_;
};

Result<Call> Call::from_spec(const Program& program, const CallSpec& spec, const yard_op_t* op) {
  return CallBuilder(program).from_spec(spec, op);
}

Call Call::capture(const Program& program, const yard_value_t* args, uint32_t flags,
                   Labels labels) {
  return CallBuilder(program).capture(args, flags, std::move(labels));
}

CallSpec Call::to_spec(const Program& program) const {
  const Schema& s = program.schema();
  CallSpec spec;
  spec.op = s.name;
  spec.device = device();
  for (const auto& flag : kCallFlags) spec.flags |= flags() & flag.second;
  spec.labels = labels();
  bool positional = true;
  for (uint32_t i = 0; i < count(); ++i) {
    const Param& p = s.params[i];
    if (p.is_output()) continue;
    // Scalars are named for readability, and arguments after an absent one must be.
    if (!p.is_tensor() || args()[i].tag == YARD_TAG_NONE) positional = false;
    if (args()[i].tag == YARD_TAG_NONE) continue;
    spec.args.push_back({positional ? "" : p.name, spec_value(p, args()[i], device())});
  }
  const auto inferred = program.infer_outputs(args());
  for (size_t k = 0; k < program.outputs().size(); ++k) {
    const uint8_t out = program.outputs()[k];
    const Param& p = s.params[out];
    const yard_value_t& v = args()[out];
    if (v.tag == YARD_TAG_NONE) continue;
    SpecValue value = spec_value(p, v, device());
    for (uint32_t in = 0; in < count(); ++in)
      if (program.may_alias(out, in) && args()[in].tag == YARD_TAG_TENSOR &&
          v.u.tensor == args()[in].u.tensor)
        value.v = SameAs{s.params[in].name};
    if (!inferred.ok() || !(*inferred)[k].known || p.optional ||
        value != SpecValue{compact((*inferred)[k])})
      spec.args.push_back({p.name, std::move(value)});
  }
  return spec;
}

void CallKey::add(std::string_view text) {
  constexpr size_t kWord = sizeof(uint64_t);
  add(text.size());
  const size_t used = words_.size();
  words_.resize(used + (text.size() + kWord - 1) / kWord);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(words_.data() + used));
}

void CallKey::add(const Labels& labels) {
  for (const auto& [name, value] : labels) {
    add(std::string_view(name));
    add(std::string_view(value));
  }
}

void CallKey::add(const yard_tensor_t& t) {
  constexpr uint32_t kAllButSpan = 0x7fffffff;  // the span follows from the sizes
  const uint64_t facts = t.facts != 0 ? t.facts : facts_of(&t);
  add(facts & kAllButSpan);
  words_.insert(words_.end(), t.shape, t.shape + t.ndim);
  if ((facts & YARD_FACTS_COMPACT) == 0 && t.strides != nullptr)
    words_.insert(words_.end(), t.strides, t.strides + t.ndim);
}

void CallKey::set(const Program& program, const yard_value_t* args, uint32_t flags) {
  words_.clear();
  add(uint64_t{flags});
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const yard_value_t& v = args[i];
    add((static_cast<uint64_t>(v.tag) << 32) | v.count);
    if (v.tag == YARD_TAG_STRING)
      add(std::string_view(v.u.string, v.count));
    else if (v.tag == YARD_TAG_TENSOR || v.tag == YARD_TAG_LIST)
      for (const yard_tensor_t* t : tensors_of(v)) add(*t);
    else if (v.tag != YARD_TAG_NONE)
      add(static_cast<uint64_t>(v.u.i));
  }
  if ((flags & YARD_CALL_ALIASED) == 0) return;
  // In a Call, an output that is an input is the same object.
  const auto address = [&](uint32_t i) -> uint64_t {
    if (args[i].tag != YARD_TAG_TENSOR) return 0;
    const yard_tensor_t* t = args[i].u.tensor;
    if (t->data == nullptr) return reinterpret_cast<uintptr_t>(t);
    return reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
  };
  for (const uint8_t out : program.outputs())
    for (uint32_t in = 0; in < program.arg_count(); ++in)
      if (program.may_alias(out, in)) add(uint64_t{address(out) == address(in)});
}

}  // namespace yard::op
