// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <structmember.h>

#include <cstring>
#include <string>
#include <vector>

#include "gil.h"
#include "policy.h"
#include "reading.h"

namespace yard::python {

thread_local CallFrame* CallFrame::t_frame = nullptr;

CallFrame::~CallFrame() {
  t_frame = outer_;
  for (size_t i = count_; i-- > 0;) tensor(i).~TensorArg();
  Py_XDECREF(failure);
  Py_XDECREF(interrupt);
}

namespace {

bool is_same(const yard_tensor_t& a, const yard_tensor_t& b) noexcept {
  if (a.data != b.data || a.byte_offset != b.byte_offset || a.ndim != b.ndim ||
      std::memcmp(&a.dtype, &b.dtype, sizeof a.dtype) != 0 ||
      std::memcmp(&a.device, &b.device, sizeof a.device) != 0)
    return false;
  int64_t compact = 1;
  for (int i = a.ndim; i-- > 0; compact *= a.shape[i]) {
    const int64_t first = a.strides != nullptr ? a.strides[i] : compact;
    const int64_t second = b.strides != nullptr ? b.strides[i] : compact;
    if (a.shape[i] != b.shape[i] || (first != second && a.shape[i] > 1)) return false;
  }
  return true;
}

}  // namespace

CallFrame::Found CallFrame::object_of(const yard_tensor_t& t) noexcept {
  // `origin` may be from anybody, so it is only compared. A kernel may pass on a part of a tensor.
  for (const CallFrame* f = t_frame; f != nullptr; f = f->outer_)
    for (size_t i = 0; i < f->count_; ++i) {
      const auto& arg = reinterpret_cast<const TensorArg&>(f->storage_[i]);
      if (t.origin == &arg) return {arg.object, is_same(arg.t, t)};
    }
  return {};
}

namespace {

struct Op {
  PyObject ob_base;
  vectorcallfunc entry;
  OpParts* parts;
};

OpParts& parts_of(PyObject* op) { return *reinterpret_cast<Op*>(op)->parts; }

// Runs f() and translates a failed allocation.
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

PyObject* call(OpParts& op, PyObject* const* args, size_t flags, PyObject* names) {
  Reading reading(op);
  if (!reading.place(args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names) ||
      !reading.read(true))
    return nullptr;
  const ActiveScope scope;
  if (scope.failed()) return nullptr;
  Status status = [&] {
    const Released others;
    std::optional<ScopedPolicy> inside;
    if (scope.get() != nullptr) inside.emplace(*scope.get());
    return Runtime::shared().call(op.name, reading.args());
  }();
  CallFrame& frame = reading.frame();
  if (frame.interrupt != nullptr) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(frame.interrupt)), frame.interrupt);
    return nullptr;
  }
  if (!status.ok()) return raise_status(status, op.name.c_str(), frame.failure), nullptr;
  return reading.result();
}

PyObject* explain(OpParts& op, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Reading reading(op);
  if (!reading.place(args, static_cast<size_t>(count), names) || !reading.read(false))
    return nullptr;
  const ActiveScope scope;
  if (scope.failed()) return nullptr;
  auto found = [&] {
    const Released others;
    std::optional<ScopedPolicy> inside;
    if (scope.get() != nullptr) inside.emplace(*scope.get());
    return Runtime::shared().explain(op.name, reading.args());
  }();
  if (!found.ok()) return raise_status(found.status(), op.name.c_str()), nullptr;
  return Py_BuildValue("(ss)", found->to_json().c_str(), found->to_text().c_str());
}

PyObject* call_op(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&] { return call(parts_of(self), args, flags, names); });
}
PyObject* explain_op(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return guarded([&] { return explain(parts_of(self), args, count, names); });
}

// Op(name, params, schema, doc), where params are tuples (name, kind, role, optional, default).
PyObject* op_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name;
  PyObject *params, *schema, *doc;
  if (!PyArg_ParseTuple(args, "sO!UU", &name, &PyTuple_Type, &params, &schema, &doc))
    return nullptr;
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  Op* const op = reinterpret_cast<Op*>(made.get());
  op->entry = &call_op;
  op->parts = new OpParts;
  op->parts->name = name;
  op->parts->schema = Ref::borrow(schema), op->parts->doc = Ref::borrow(doc);
  const Py_ssize_t count = PyTuple_GET_SIZE(params);
  if (count > YARD_MAX_ARGS) return PyErr_Format(PyExc_ValueError, "too many parameters");
  op->parts->params.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Param& p = op->parts->params[static_cast<size_t>(i)];
    const char *text, *kind, *role;
    int optional;
    PyObject* fallback;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(params, i), "ssspO", &text, &kind, &role, &optional,
                          &fallback))
      return nullptr;
    p.text = text, p.kind = *kind, p.optional = optional != 0;
    p.name = Ref(PyUnicode_InternFromString(text));
    p.output = *role == '!', p.written = *role == '!' || *role == '~';
    if (fallback != Py_None) {
      switch (p.kind) {
        case 'i': p.default_value = Value(static_cast<int64_t>(PyLong_AsLongLong(fallback))); break;
        case 'f': p.default_value = Value(PyFloat_AsDouble(fallback)); break;
        case 'b': p.default_value = Value(fallback == Py_True); break;
        default: {
          const char* const word = PyUnicode_AsUTF8(fallback);
          if (word == nullptr) return nullptr;
          p.default_text = word;
          p.default_value = Value(p.default_text);
        }
      }
      if (PyErr_Occurred()) return nullptr;
    }
    (p.output ? op->parts->outputs : op->parts->inputs).push_back(static_cast<uint8_t>(i));
  }
  return made.release();
}

void op_dealloc(PyObject* o) {
  delete reinterpret_cast<Op*>(o)->parts;
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* op_repr(PyObject* o) {
  return PyUnicode_FromFormat("<yard op %U>", parts_of(o).schema.get());
}
PyObject* op_name(PyObject* o, void*) { return PyUnicode_FromString(parts_of(o).name.c_str()); }
PyObject* op_schema(PyObject* o, void*) { return Py_NewRef(parts_of(o).schema.get()); }
PyObject* op_doc(PyObject* o, void*) { return Py_NewRef(parts_of(o).doc.get()); }

PyMethodDef op_methods[] = {
    {"_explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(&explain_op)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {}};
PyGetSetDef op_members[] = {{"__name__", &op_name, nullptr, nullptr, nullptr},
                            {"schema", &op_schema, nullptr, "The schema, as text.", nullptr},
                            {"__doc__", &op_doc, nullptr, nullptr, nullptr},
                            {}};
PyMemberDef op_offsets[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Op, entry), READONLY, nullptr}, {}};
PyType_Slot op_slots[] = {{Py_tp_new, reinterpret_cast<void*>(&op_new)},
                          {Py_tp_dealloc, reinterpret_cast<void*>(&op_dealloc)},
                          {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                          {Py_tp_repr, reinterpret_cast<void*>(&op_repr)},
                          {Py_tp_methods, op_methods},
                          {Py_tp_getset, op_members},
                          {Py_tp_members, op_offsets},
                          {}};
PyType_Spec op_spec = {"yard.Op", sizeof(Op), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                       op_slots};

}  // namespace

PyObject* unicode(std::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

bool add_op_type(PyObject* module) {
  const Ref type(PyType_FromSpec(&op_spec));
  return type && PyModule_AddObjectRef(module, "Op", type.get()) == 0;
}

void raise_status(const Status& status, const char* op, PyObject* cause) {
  const Ref module(PyImport_ImportModule("yard._errors"));
  if (!module) return;
  const Ref notes(PyTuple_New(static_cast<Py_ssize_t>(status.notes().size())));
  if (!notes) return;
  for (size_t i = 0; i < status.notes().size(); ++i)
    PyTuple_SET_ITEM(notes.get(), static_cast<Py_ssize_t>(i), unicode(status.notes()[i]));
  const Ref message(unicode(status.message()));
  const Ref error(message ? PyObject_CallMethod(
                                module.get(), "made", "ssiOO", op, to_string(status.code()),
                                static_cast<int>(status.error_class()), message.get(), notes.get())
                          : nullptr);
  if (!error) return;
  if (cause != nullptr) PyException_SetCause(error.get(), Py_NewRef(cause));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
}

}  // namespace yard::python
