// SPDX-License-Identifier: Apache-2.0
// Ops, kernels and verifiers that are written in Python.
#pragma once

#include <Python.h>

namespace yard::python {

// Adds register_kernel, register_op, unregister and end to the module. end() makes every kernel in
// Python decline, before the interpreter ends.
void add_kernel_functions(PyObject* module);

}  // namespace yard::python
