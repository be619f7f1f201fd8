// SPDX-License-Identifier: Apache-2.0
// Dispatched functions in Python. All have the signature object(*args, **kwargs).
#pragma once

#include <Python.h>

namespace yard::python {

// Adds the class Function and add_backend(), remove_backend() and functions() to the module.
bool add_functions(PyObject* module);

}  // namespace yard::python
