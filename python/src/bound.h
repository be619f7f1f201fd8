// SPDX-License-Identifier: Apache-2.0
// The class yard.Handle: an op that is bound to arguments of one form.
#pragma once

#include <Python.h>

namespace yard::python {

bool add_handle_type(PyObject* module);

}  // namespace yard::python
