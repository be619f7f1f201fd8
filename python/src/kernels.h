// SPDX-License-Identifier: Apache-2.0
// Ops, kernels and verifiers that are written in Python.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

namespace yard::python {

// The kernels of an op that were registered with autograd=True. These functions need the GIL.
bool has_autograd_kernel(const std::string& op);
std::vector<std::string> autograd_kernels(const std::string& op);

// Adds register_kernel, register_op, unregister and end to the module. end() makes every kernel in
// Python decline, before the interpreter ends.
void add_kernel_functions(PyObject* module);

}  // namespace yard::python
