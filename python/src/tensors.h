// SPDX-License-Identifier: Apache-2.0
// Reads tensors of Python libraries without copying them, and makes new ones.
#pragma once

#include <Python.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

#include "dlpack.h"

namespace yard::python {

// How a class of objects gives its memory.
enum class Source : uint8_t { kNone, kExchange, kTorch, kNumpy, kBuffer, kDlpack, kOwn, kSubclass };
// The library that makes outputs for a call.
enum class Framework : uint8_t { kNone, kTorch, kNumpy, kExchange };

struct TensorClass {
  PyTypeObject* type = nullptr;
  Source source = Source::kNone;
  Framework framework = Framework::kNone;
  const DlExchange* exchange = nullptr;
};
// Looks at a class once. The reference is valid until the next call. All functions of this file
// need the GIL.
const TensorClass& class_of(PyObject* object);

// A tensor of one call. The destructor returns what reading has borrowed.
class TensorArg {
 public:
  TensorArg() noexcept = default;
  ~TensorArg() {
    if (held_ != Held::kNothing) release();
  }
  TensorArg(const TensorArg&) = delete;
  TensorArg& operator=(const TensorArg&) = delete;

  // Returns false with a Python error that does not name the argument.
  bool read(PyObject* object, const TensorClass& of, bool writes);

  yard_tensor_t t;
  PyObject* object = nullptr;  // borrowed
  Framework framework = Framework::kNone;

 private:
  void release() noexcept;
  bool read_numpy(bool writes);
  bool read_buffer(bool writes);
  bool read_capsule(PyObject* capsule, bool writes);
  bool take(const DlTensor& from);
  bool take_strides(const Py_ssize_t* bytes, Py_ssize_t item);

  enum class Held : uint8_t { kNothing, kBuffer, kManaged, kVersioned };
  Held held_ = Held::kNothing;
  union {
    int64_t shape_[YARD_MAX_RANK];  // of arrays of numpy, which other threads may reshape
    Py_buffer buffer_;
    DlManaged* managed_;
    DlManagedVersioned* versioned_;
  };
  int64_t strides_[YARD_MAX_RANK];
};

// Whether torch computes gradients now and the torch tensor takes part. -1 is a Python error.
int requires_grad(PyObject* torch_tensor);
bool grad_mode();

// These return null with a Python error. make_tensor() makes a tensor without contents, on the
// device and by the library of `like`.
PyObject* make_tensor(const TensorArg& like, const TensorClass& of, DType dtype, PyObject* shape);
// Makes a yard.Tensor over memory that it does not own. It keeps `owner`, which may be null.
PyObject* lend_tensor(const yard_tensor_t& t, PyObject* owner, bool read_only);
// Makes a tensor of torch or numpy that shares a yard.Tensor's memory.
PyObject* to_library(PyObject* tensor, bool torch);
const char* buffer_format(yard_dtype_t t);  // the letter of buffers, or null if there is none

extern PyTypeObject* g_own_type;  // yard.Tensor
bool add_own_type(PyObject* module);
bool read_own(PyObject* object, bool writes, yard_tensor_t& to);

}  // namespace yard::python
