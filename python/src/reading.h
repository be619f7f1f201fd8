// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of a call from Python, and makes the outputs that are missing.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"

namespace yard::python {

struct Param {
  Ref name;
  std::string text;
  char kind = 't';  // t tensor, l list of tensors, i, f, b, s string, e enum
  bool optional = false, output = false, written = false;
  std::vector<std::string> words;   // of an enum
  yard_value_t default_value = {};  // of a scalar; with the tag NONE if there is none
  std::string default_text;

  bool is_tensor() const noexcept { return kind == 't' || kind == 'l'; }
};

// Bytes that describe a call, on the stack unless there are many.
class FormKey {
 public:
  template <class T>
  void add(const T& v) {
    add(&v, sizeof v);
  }
  void add(const void* from, size_t size) {
    if (more_.empty() && size_ + size <= sizeof bytes_) {
      std::memcpy(bytes_ + size_, from, size);
    } else {
      if (more_.empty()) more_.assign(bytes_, size_);
      more_.append(static_cast<const char*>(from), size);
    }
    size_ += size;
  }
  // Adds dtype, sizes and device.
  void add(const yard_tensor_t& t) {
    add(t.dtype), add(t.ndim), add(t.device);
    add(t.shape, static_cast<size_t>(t.ndim) * sizeof(int64_t));
  }
  std::string_view get() const { return {more_.empty() ? bytes_ : more_.data(), size_}; }

 private:
  char bytes_[512];
  size_t size_ = 0;
  std::string more_;
};

struct InferredOutput {
  DType dtype = DType::invalid;
  Ref shape;  // a tuple
};
struct Inferred {  // outputs of calls whose tensors have these dtypes and sizes
  std::string key;
  std::vector<InferredOutput> outputs;
};

// An op as one schema describes it. Needs the GIL, like everything here.
struct OpParts {
  std::string name;
  std::vector<Param> params;
  std::vector<uint8_t> inputs, outputs;  // indices of params
  std::array<std::shared_ptr<const Inferred>, 16> inferred;
  size_t next_inferred = 0;
  Ref doc, schema;
  detail::Site* site = nullptr;  // for calls; found by the first one
  uint32_t index = 0;            // of the site, which changes with the schema
  size_t users = 0;
};
// Keeps the parts of an op, which may be replaced while a call runs.
class PartsRef {
 public:
  PartsRef() noexcept = default;
  explicit PartsRef(OpParts* parts) noexcept : parts_(parts) { ++parts_->users; }
  PartsRef(const PartsRef& other) noexcept : PartsRef(other.parts_) {}
  PartsRef& operator=(const PartsRef&) = delete;
  ~PartsRef() { reset(); }
  void reset(OpParts* parts = nullptr) noexcept {
    OpParts* const old = std::exchange(parts_, parts);
    if (parts != nullptr) ++parts->users;
    if (old != nullptr && --old->users == 0) delete old;
  }
  OpParts& operator*() const noexcept { return *parts_; }
  OpParts* operator->() const noexcept { return parts_; }

 private:
  OpParts* parts_ = nullptr;
};

// One call while its arguments are read.
class Reading {
 public:
  explicit Reading(OpParts& op) noexcept : op_(op) {
    std::fill_n(values_, op_.params.size(), nullptr);
  }
  ~Reading() {
    while (kept_count_ > 0) Py_DECREF(kept_[--kept_count_]);
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  bool place(PyObject* const* args, size_t count, PyObject* names);
  // Gives the arguments that are missing. Borrows them.
  void place_rest(PyObject* const* values) noexcept;
  // Without outputs, as explain() does: outputs that are not given have no data.
  bool read(bool allocate);
  // The arguments of the library. Cells beyond the parameters are absent, because the op may get
  // more of them at any time.
  const yard_value_t* cells() noexcept {
    const size_t count = op_.params.size();
    std::memset(static_cast<void*>(cells_ + count), 0, sizeof cells_ - count * sizeof *cells_);
    return cells_;
  }
  PyObject* const* values() const noexcept { return values_; }  // null where none was given
  CallFrame& frame() noexcept { return frame_; }
  PyObject* result();

 private:
  bool place_named(PyObject* name, PyObject* value);
  bool place_outputs(PyObject* value);
  bool read_one(size_t i);
  bool read_tensor(const Param& p, PyObject* object, const yard_tensor_t*& to);
  bool check_gradient(const Param& p, PyObject* object);
  bool read_list(const Param& p, PyObject* object, yard_value_t& to);
  bool read_scalar(const Param& p, PyObject* object, yard_value_t& to);
  bool read_word(const Param& p, std::string_view word, yard_value_t& to);
  bool add_outputs(bool allocate);
  // Returns null with a Python error.
  std::shared_ptr<const Inferred> infer();

  OpParts& op_;
  CallFrame frame_;
  PyObject* values_[YARD_MAX_ARGS];  // borrowed, by parameter
  yard_value_t cells_[YARD_MAX_ARGS];
  const TensorArg* like_ = nullptr;  // the first tensor of a library that can make others
  TensorClass like_class_;
  std::vector<std::vector<const yard_tensor_t*>> lists_;
  PyObject* kept_[YARD_MAX_ARGS];  // owned: items of lists, and outputs that were made
  size_t kept_count_ = 0;
  std::vector<TensorView> views_;
  int grads_ = -1;  // whether torch computes gradients; -1 is unknown
};

// Makes the call that has been read, by a handle unless `bound` is null. Returns false with a
// Python error if the call could not be made or was interrupted, and otherwise its Status.
bool call(OpParts& op, Reading& reading, detail::BoundState* bound, Status& to);
bool attach(OpParts& op);  // finds the site; returns false with a Python error
PartsRef parts_of(PyObject* op);

}  // namespace yard::python
