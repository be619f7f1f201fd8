// SPDX-License-Identifier: Apache-2.0
// Calls from Python: the op that is called like a function, and what a thread's calls share with
// kernels in Python.
#pragma once

#include <Python.h>
#include <yard/yard.h>

#include <exception>
#include <new>

#include "ref.h"
#include "tensors.h"

namespace yard::python {

// The tensors of a call from Python, and the exceptions of kernels in Python that served it. Frames
// of nested calls are a list of their thread.
class CallFrame {
 public:
  CallFrame() noexcept : outer_(t_frame) { t_frame = this; }
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  TensorArg& add() noexcept { return *new (&storage_[count_++]) TensorArg; }
  TensorArg& tensor(size_t i) noexcept { return *reinterpret_cast<TensorArg*>(&storage_[i]); }
  size_t count() const noexcept { return count_; }
  static constexpr size_t kMost = 64;

  // Finds the caller's object whose memory a tensor has that the runtime has passed on.
  struct Found {
    PyObject* object = nullptr;
    Framework framework = Framework::kNone;  // of the object
    bool same = false;                       // the tensor is the whole object, and not a part
  };
  static Found object_of(const yard_tensor_t& t) noexcept;
  static CallFrame* current() noexcept { return t_frame; }
  // If a kernel or verifier raised KeyboardInterrupt or SystemExit, raises it and returns true.
  bool raise_interrupt() noexcept {
    if (interrupt == nullptr) return false;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(interrupt)), interrupt);
    return true;
  }

  PyObject* failure = nullptr;    // the last exception of a kernel, owned
  PyObject* interrupt = nullptr;  // KeyboardInterrupt or SystemExit, owned
  bool has_gradients = false;     // an input requires a gradient, in torch's grad mode

 private:
  // One word of the static thread-local storage, since calls through the dynamic one cost time.
  static thread_local constinit CallFrame* t_frame __attribute__((tls_model("initial-exec")));
  CallFrame* const outer_;
  size_t count_ = 0;
  struct alignas(TensorArg) Storage {
    std::byte bytes[sizeof(TensorArg)];
  };
  Storage storage_[kMost];
};

// Runs f(), which returns an object, and translates C++ exceptions.
template <class F>
PyObject* guarded(const F& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& e) {
    return PyErr_Format(PyExc_RuntimeError, "%s", e.what());
  }
}

extern PyTypeObject* g_op_type;  // yard.Op
bool add_op_type(PyObject* module);

PyObject* unicode(std::string_view text);
// Sets the Python error for a failed call.
void raise_status(const Status& status, const char* op, PyObject* cause = nullptr);

}  // namespace yard::python
