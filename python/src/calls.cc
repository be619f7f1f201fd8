// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gil.h"
#include "kernels.h"
#include "policy.h"
#include "reading.h"

namespace yard::python {

thread_local constinit CallFrame* CallFrame::t_frame = nullptr;

CallFrame::~CallFrame() {
  t_frame = outer_;
  for (size_t i = count_; i-- > 0;) tensor(i).~TensorArg();
  Py_XDECREF(failure);
  Py_XDECREF(interrupt);
}

namespace {

bool is_same(const yard_tensor_t& a, const yard_tensor_t& b) noexcept {
  if (std::memcmp(&a, &b, sizeof(DlTensor)) == 0) return true;  // also the pointers
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
      if (t.origin == &arg) return {arg.object, arg.framework, is_same(arg.t, t)};
    }
  return {};
}

namespace {

struct Op {
  PyObject ob_base;
  vectorcallfunc entry;
  PartsRef parts;
};

Op* op_of(PyObject* o) { return reinterpret_cast<Op*>(o); }

// Whether the op has got another schema. A call finds this out, so it is late by one call.
bool is_stale(const OpParts& op) { return op.site != nullptr && op.site->index.load() != op.index; }

bool refresh(PyObject* op) {
  const Ref module(PyImport_ImportModule("yard._calls"));
  const Ref done(module ? PyObject_CallMethod(module.get(), "_refresh", "O", op) : nullptr);
  return static_cast<bool>(done);
}

// Lets only kernels that compute gradients run, as far as the policy allows them.
Options gradient_options(const std::vector<std::string>& kernels) {
  auto allowed = current_scope().policy().allow_kernels;
  if (!allowed) allowed = Runtime::shared().policy().allow_kernels;
  Options o;
  auto& to = o.policy.emplace().allow_kernels.emplace();
  for (const std::string& id : kernels)
    if (!allowed || std::ranges::any_of(
                        *allowed, [&](const std::string& glob) { return glob_matches(glob, id); }))
      to.push_back(id);
  return o;
}

PyObject* call_op(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&]() -> PyObject* {
    for (;;) {
      const PartsRef op = op_of(self)->parts;
      if (is_stale(*op)) {
        if (!refresh(self)) return nullptr;
        continue;
      }
      Reading reading(*op);
      Status status;
      if (!reading.place(args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names) ||
          !reading.read(true) || !call(*op, reading, nullptr, status))
        return nullptr;
      if (status.ok()) return reading.result();
      if (status.code() == Code::kInvalidArgument && is_stale(*op)) continue;
      return raise_status(status, op->name.c_str(), reading.frame().failure), nullptr;
    }
  });
}

PyObject* explain_op(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return guarded([&]() -> PyObject* {
    if (is_stale(*op_of(self)->parts) && !refresh(self)) return nullptr;
    const PartsRef op = op_of(self)->parts;
    Reading reading(*op);
    if (!reading.place(args, static_cast<size_t>(count), names) || !reading.read(false) ||
        !attach(*op))
      return nullptr;
    std::vector<std::string> kernels;
    if (reading.frame().has_gradients) kernels = autograd_kernels(op->name);
    Result<Explanation> found = Status::out_of_memory();
    const bool done = in_active_scope([&] {
      const Options o = reading.frame().has_gradients ? gradient_options(kernels) : Options();
      found = detail::explain_site(op->site, reading.cells(), &o);
    });
    if (!done || reading.frame().raise_interrupt()) return nullptr;
    if (!found.ok()) return raise_status(found.status(), op->name.c_str()), nullptr;
    return Py_BuildValue("(ss)", found->to_json().c_str(), found->to_text().c_str());
  });
}

bool read_default(Param& p, PyObject* value) {
  if (value == Py_None) return true;
  switch (p.kind) {
    case 'i': p.default_value = {YARD_TAG_INT, 0, {.i = PyLong_AsLongLong(value)}}; break;
    case 'f': p.default_value = {YARD_TAG_FLOAT, 0, {.f = PyFloat_AsDouble(value)}}; break;
    case 'b': p.default_value = {YARD_TAG_BOOL, 0, {.i = value == Py_True}}; break;
    default: {
      const char* const text = PyUnicode_AsUTF8(value);
      if (text == nullptr) return false;
      p.default_text = text;
      const auto word = std::ranges::find(p.words, p.default_text);
      p.default_value = p.kind == 'e' ? yard_value_t{YARD_TAG_INT, 0, {.i = word - p.words.begin()}}
                                      : Value(p.default_text).c();
    }
  }
  return PyErr_Occurred() == nullptr;
}

// Reads a tuple (name, kind, role, optional, default, words).
bool read_param(PyObject* row, Param& p) {
  const char *text, *kind, *role;
  int optional;
  PyObject *fallback, *words;
  if (!PyArg_ParseTuple(row, "ssspOO!", &text, &kind, &role, &optional, &fallback, &PyTuple_Type,
                        &words))
    return false;
  p.text = text, p.kind = *kind, p.optional = optional != 0;
  p.name = Ref(PyUnicode_InternFromString(text));
  p.output = *role == '!', p.written = *role == '!' || *role == '~';
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(words); ++i) {
    const char* const word = PyUnicode_AsUTF8(PyTuple_GET_ITEM(words, i));
    if (word == nullptr) return false;
    p.words.emplace_back(word), p.kind = 'e';
  }
  return p.name && read_default(p, fallback);
}

// op._set(name, params, schema, doc) describes the op, also when its schema has changed.
PyObject* op_set(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject *params, *schema, *doc;
    if (!PyArg_ParseTuple(args, "sO!UU", &name, &PyTuple_Type, &params, &schema, &doc))
      return nullptr;
    auto made = std::make_unique<OpParts>();
    made->name = name, made->schema = Ref::borrow(schema), made->doc = Ref::borrow(doc);
    const Py_ssize_t count = PyTuple_GET_SIZE(params);
    if (count > YARD_MAX_ARGS) return PyErr_Format(PyExc_ValueError, "too many parameters");
    made->params.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < made->params.size(); ++i) {
      Param& p = made->params[i];
      if (!read_param(PyTuple_GET_ITEM(params, static_cast<Py_ssize_t>(i)), p)) return nullptr;
      (p.output ? made->outputs : made->inputs).push_back(static_cast<uint8_t>(i));
    }
    op_of(self)->parts.reset(made.release());
    Py_RETURN_NONE;
  });
}

// Op(name, params, schema, doc)
PyObject* op_new(PyTypeObject* type, PyObject* args, PyObject*) {
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  new (&op_of(made.get())->parts) PartsRef;
  op_of(made.get())->entry = &call_op;
  return Ref(op_set(made.get(), args)) ? made.release() : nullptr;
}

void op_dealloc(PyObject* o) {
  op_of(o)->parts.~PartsRef();
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* op_repr(PyObject* o) {
  return PyUnicode_FromFormat("<yard op %U>", op_of(o)->parts->schema.get());
}
PyObject* op_name(PyObject* o, void*) {
  return PyUnicode_FromString(op_of(o)->parts->name.c_str());
}
PyObject* op_schema(PyObject* o, void*) { return Py_NewRef(op_of(o)->parts->schema.get()); }
PyObject* op_doc(PyObject* o, void*) { return Py_NewRef(op_of(o)->parts->doc.get()); }

// Makes a function in Python the attribute __call__ of ops, because torch.compile traces that.
// Calls do not use it. They go to call_op(), because the slots of the type stay.
PyObject* trace_calls_as(PyObject* type, PyObject* function) {
  auto* const t = reinterpret_cast<PyTypeObject*>(type);
  if (PyDict_SetItemString(t->tp_dict, "__call__", function) != 0) return nullptr;
  PyType_Modified(t);
  Py_RETURN_NONE;
}

PyMethodDef op_methods[] = {
    {"_trace_calls_as", &trace_calls_as, METH_O | METH_CLASS, nullptr},
    {"_explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(&explain_op)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_set", &op_set, METH_VARARGS, nullptr},
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

PyTypeObject* g_op_type = nullptr;

PartsRef parts_of(PyObject* op) { return op_of(op)->parts; }

bool attach(OpParts& op) {
  if (op.site != nullptr) return true;
  Status why;
  detail::Site* site;
  {
    const Released others;
    site = detail::attach(nullptr, op.name.c_str(), "*", &why);
  }
  if (site == nullptr) return raise_status(why, op.name.c_str()), false;
  op.index = site->index.load(), op.site = site;
  return true;
}

bool add_op_type(PyObject* module) {
  g_op_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&op_spec));
  return g_op_type != nullptr &&
         PyModule_AddObjectRef(module, "Op", reinterpret_cast<PyObject*>(g_op_type)) == 0;
}

bool call(OpParts& op, Reading& reading, detail::BoundState* bound, Status& to) {
  if (!attach(op)) return false;
  CallFrame& frame = reading.frame();
  const yard_value_t* const cells = reading.cells();
  std::vector<std::string> kernels;
  if (frame.has_gradients) kernels = autograd_kernels(op.name);
  const bool done = in_active_scope([&] {
    if (frame.has_gradients) [[unlikely]]
      to = Status::adopt(detail::dispatch_with(op.site, cells, gradient_options(kernels)));
    else
      to = Status::adopt(bound != nullptr ? detail::call_bound(bound, cells)
                                          : detail::dispatch(op.site, cells));
  });
  if (!done) return false;
  if (frame.raise_interrupt()) return false;
  if (frame.has_gradients && to.code() == Code::kNoKernel)
    to.note("an input requires a gradient, so only kernels with autograd=True may run");
  return true;
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
