// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of a call from Python, and makes the outputs that are missing.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "calls.h"

namespace yard::python {

struct Param {
  Ref name;
  std::string text;
  char kind = 't';  // t tensor, l list of tensors, i, f, b, s (also enums)
  bool optional = false, output = false, written = false;
  std::string default_text;
  std::optional<Value> default_value;  // of a scalar
};

struct InferredOutput {
  DType dtype = DType::invalid;
  Ref shape;  // a tuple
  InferredOutput copy() const { return {dtype, Ref::borrow(shape.get())}; }
};
struct Inferred {  // outputs of calls whose tensors have these dtypes and sizes
  std::string key;
  std::vector<InferredOutput> outputs;
};

struct OpParts {
  std::string name;
  std::vector<Param> params;
  std::vector<uint8_t> inputs, outputs;  // indices of params
  std::array<Inferred, 16> inferred;
  size_t next_inferred = 0;
  Ref doc, schema;
};

// One call while its arguments are read.
class Reading {
 public:
  explicit Reading(OpParts& op) noexcept : op_(op) {}

  bool place(PyObject* const* args, size_t count, PyObject* names);
  // Without outputs, as explain() does: outputs that are not given have no data.
  bool read(bool allocate);
  std::span<const Arg> args() const noexcept { return {args_, op_.params.size()}; }
  CallFrame& frame() noexcept { return frame_; }
  PyObject* result();

 private:
  bool place_named(PyObject* name, PyObject* value);
  bool place_outputs(PyObject* value);
  bool read_one(size_t i);
  bool read_tensor(const Param& p, PyObject* object, const yard_tensor_t*& to);
  bool read_list(const Param& p, PyObject* object, Value& to);
  bool read_scalar(const Param& p, PyObject* object, Value& to);
  bool add_outputs(bool allocate);
  bool infer(std::vector<InferredOutput>& to);
  void set(size_t i, const Value& v) noexcept { new (&args_[i]) Arg(v); }

  OpParts& op_;
  CallFrame frame_;
  PyObject* values_[YARD_MAX_ARGS] = {};  // borrowed, by parameter
  Ref made_[YARD_MAX_ARGS];
  union {
    Arg args_[YARD_MAX_ARGS];
  };
  const TensorArg* like_ = nullptr;  // the first tensor of a library that can make others
  TensorClass like_class_;
  std::vector<std::vector<const yard_tensor_t*>> lists_;
  std::vector<Ref> items_;  // of lists
  std::vector<TensorView> views_;
  int grads_ = -1;  // whether torch computes gradients; -1 is unknown
};

}  // namespace yard::python
