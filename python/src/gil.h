// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, and Python objects that the runtime keeps.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "ref.h"

namespace yard::python {

inline std::atomic<bool> g_ended{false};  // Python code must not run any more

// A thread that asks for the lock while the interpreter ends is ended by Python, which unwinds the
// thread's stack. Destructors would then release objects without the lock, so the thread waits.
template <class F>
auto or_hang(const F& take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) ::pause();
  }
}

class Gil {
 public:
  Gil() noexcept : state_(or_hang([] { return PyGILState_Ensure(); })) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Releases the lock while it exists. The runtime may then call Python code on any thread.
class Released {
 public:
  Released() noexcept : thread_(PyEval_SaveThread()) {}
  ~Released() {
    or_hang([this] { PyEval_RestoreThread(thread_); });
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* const thread_;
};

// A reference that any thread may release, also without the lock.
class Kept {
 public:
  Kept() noexcept = default;
  explicit Kept(PyObject* borrowed) noexcept : ref_(Ref::borrow(borrowed)) {}
  ~Kept() {
    if (!ref_) return;
    if (g_ended.load()) {
      (void)ref_.release();  // objects cannot be released any more
    } else {
      const Gil gil;
      ref_ = Ref();
    }
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  void set(PyObject* borrowed) noexcept { ref_ = Ref::borrow(borrowed); }
  PyObject* get() const noexcept { return ref_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(ref_); }

 private:
  Ref ref_;
};

// Takes the Python error as an exception object with its traceback.
PyObject* take_exception();
bool is_declined(PyObject* exception);  // whether it is a yard.Declined
// Returns "ValueError: text". Needs the lock.
std::string exception_text(PyObject* exception);

}  // namespace yard::python
