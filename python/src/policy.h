// SPDX-License-Identifier: Apache-2.0
// Policies as context managers. A context variable holds the policies that a thread or an asyncio
// task has entered, as one Scope, and each call enters this Scope.
#pragma once

#include <Python.h>
#include <yard/policy.h>

#include <optional>

#include "gil.h"

namespace yard::python {

// The Scope of the calls that Python code makes now.
class ActiveScope {
 public:
  ActiveScope();
  ~ActiveScope() { Py_XDECREF(node_); }
  ActiveScope(const ActiveScope&) = delete;
  ActiveScope& operator=(const ActiveScope&) = delete;
  const Scope* get() const noexcept { return scope_; }       // null outside of policies
  bool failed() const noexcept { return node_ == nullptr; }  // with a Python error

 private:
  PyObject* node_ = nullptr;
  const Scope* scope_ = nullptr;
};

// Runs f() in the Scope of the Python code, without the GIL. Returns false with a Python error if
// the Scope cannot be found.
template <class F>
bool in_active_scope(const F& f) {
  const ActiveScope scope;
  if (scope.failed()) return false;
  const Released others;
  std::optional<ScopedPolicy> inside;
  if (scope.get() != nullptr) inside.emplace(*scope.get());
  f();
  return true;
}

bool add_policy_type(PyObject* module);

}  // namespace yard::python
