// SPDX-License-Identifier: Apache-2.0
#include "policy.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "calls.h"
#include "ref.h"

namespace nb = nanobind;

namespace yard::python {
namespace {

PyObject* g_variable = nullptr;  // the ContextVar; its value is a Node or None
PyTypeObject* g_node_type = nullptr;
bool g_entered = false;  // whether a policy was ever entered; under the GIL

struct Node {  // does not change
  PyObject ob_base;
  Scope* scope;
  PyObject* outer;         // a Node or None
  const void* entered_by;  // only compared
};
struct Entry {  // a policy, which is entered and left
  PyObject ob_base;
  Scope* scope;
  PyObject* outermost;  // the Node of entering it outside of other policies, or null
};

Node* node(PyObject* o) { return reinterpret_cast<Node*>(o); }
Entry* entry(PyObject* o) { return reinterpret_cast<Entry*>(o); }

template <class T>
void read(const nb::dict& fields, const char* name, T& to) {
  if (fields.contains(name) && !fields[name].is_none()) to = nb::cast<T>(fields[name]);
}

Scope read_scope(const nb::dict& fields) {
  Policy p;
  std::optional<std::string> prefer, mode;
  read(fields, "prefer", prefer);
  read(fields, "strict", p.strict);
  read(fields, "order", p.per_op);
  read(fields, "allow_vendors", p.allow_vendors);
  read(fields, "deny_vendors", p.deny_vendors);
  read(fields, "allow_kernels", p.allow_kernels);
  read(fields, "deny_kernels", p.deny_kernels);
  read(fields, "locks", p.locks);
  read(fields, "transforms", p.transforms);
  for (const Kind kind : {Kind::kDefault, Kind::kVendor, Kind::kReference})
    if (prefer && *prefer == to_string(kind)) p.prefer = kind;
  if (prefer && !p.prefer)
    throw nb::value_error(
        ("prefer: expected 'default', 'vendor' or 'reference', got '" + *prefer + "'").c_str());
  Scope to(std::move(p));
  std::map<std::string, std::string> labels;
  read(fields, "labels", labels);
  for (const auto& [label, value] : labels) to = to.label(label, value);
  read(fields, "mode", mode);
  if (mode) to = to.mode(*mode);
  std::optional<bool> on;
  read(fields, "inference", on);
  if (on) to = to.inference(*on);
  on.reset();
  read(fields, "deterministic", on);
  if (on) to = to.deterministic(*on);
  return to;
}

int entry_init(PyObject* self, PyObject* args, PyObject*) {
  PyObject* fields;
  if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &fields)) return -1;
  if (entry(self)->scope != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "a policy does not change");
    return -1;
  }
  try {
    Scope scope = read_scope(nb::borrow<nb::dict>(fields));
    if (const Status status = scope.status(); !status.ok())
      return raise_status(status, "policy"), -1;
    entry(self)->scope = new Scope(std::move(scope));
    return 0;
  } catch (const nb::builtin_exception& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "a field of the policy has a value of another type");
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return -1;
}

bool set(PyObject* value) {
  PyObject* const token = PyContextVar_Set(g_variable, value);
  Py_XDECREF(token);
  return token != nullptr;
}

// Gets the context's Node or None. Other values can only come from code that looked for trouble.
bool find_node(PyObject*& to) {
  if (PyContextVar_Get(g_variable, nullptr, &to) != 0) return false;
  if (to == Py_None || (Py_TYPE(to) == g_node_type && node(to)->scope != nullptr)) return true;
  Py_CLEAR(to);
  PyErr_SetString(PyExc_TypeError, "the context variable yard.policy has another value");
  return false;
}

PyObject* make_node(const void* entered_by, PyObject* outer, const Scope& scope) {
  PyObject* const made = g_node_type->tp_alloc(g_node_type, 0);
  if (made == nullptr) return nullptr;
  node(made)->scope = new Scope(scope);
  node(made)->outer = Py_NewRef(outer), node(made)->entered_by = entered_by;
  return made;
}

PyObject* enter(PyObject* self, PyObject*) {
  Entry* const e = entry(self);
  g_entered = true;
  if (e->scope == nullptr) return PyErr_Format(PyExc_RuntimeError, "the policy was not made");
  PyObject* now = nullptr;
  if (!find_node(now)) return nullptr;
  const Ref outer(now);
  if (outer.get() == Py_None) {
    if (e->outermost == nullptr) e->outermost = make_node(self, outer.get(), *e->scope);
    if (e->outermost == nullptr || !set(e->outermost)) return nullptr;
    return Py_NewRef(self);
  }
  const ScopedPolicy outside(*node(outer.get())->scope);
  const ScopedPolicy inside(*e->scope);
  const Ref made(make_node(self, outer.get(), current_scope()));
  return made && set(made.get()) ? Py_NewRef(self) : nullptr;
}

PyObject* leave(PyObject* self, PyObject* const*, Py_ssize_t) {
  PyObject* now = nullptr;
  if (!find_node(now)) return nullptr;
  const Ref inner(now);
  if (now == Py_None || node(now)->entered_by != self)
    return PyErr_Format(PyExc_RuntimeError, "leave policies in the reverse order of entering them");
  if (!set(node(now)->outer)) return nullptr;
  Py_RETURN_NONE;
}

void node_dealloc(PyObject* o) {
  delete node(o)->scope;
  PyObject* outer = node(o)->outer;
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
  // Not recursive, because nodes may be nested deeply.
  while (outer != nullptr && Py_TYPE(outer) == g_node_type && Py_REFCNT(outer) == 1) {
    PyObject* const next = std::exchange(node(outer)->outer, nullptr);
    Py_DECREF(outer);
    outer = next;
  }
  Py_XDECREF(outer);
}
void entry_dealloc(PyObject* o) {
  delete entry(o)->scope;
  Py_XDECREF(entry(o)->outermost);
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"__enter__", &enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(&leave)),
     METH_FASTCALL, nullptr},
    {}};
PyType_Slot entry_slots[] = {{Py_tp_init, reinterpret_cast<void*>(&entry_init)},
                             {Py_tp_new, reinterpret_cast<void*>(&PyType_GenericNew)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(&entry_dealloc)},
                             {Py_tp_methods, methods},
                             {}};
PyType_Slot node_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&node_dealloc)}, {}};
PyType_Spec entry_spec = {"yard._yard.Policy", sizeof(Entry), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, entry_slots};
PyType_Spec node_spec = {"yard._yard.Node", sizeof(Node), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, node_slots};

}  // namespace

ActiveScope::ActiveScope() {
  if (!g_entered) {
    node_ = Py_NewRef(Py_None);
    return;
  }
  if (find_node(node_) && node_ != Py_None) scope_ = node(node_)->scope;
}

bool add_policy_type(PyObject* module) {
  g_variable = PyContextVar_New("yard.policy", Py_None);
  g_node_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&node_spec));
  const Ref type(PyType_FromSpec(&entry_spec));
  return g_variable != nullptr && g_node_type != nullptr && type &&
         PyModule_AddObjectRef(module, "Policy", type.get()) == 0;
}

}  // namespace yard::python
