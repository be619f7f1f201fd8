// SPDX-License-Identifier: Apache-2.0
#include "bound.h"

#include <structmember.h>

#include <memory>
#include <string>
#include <vector>

#include "gil.h"
#include "policy.h"
#include "reading.h"

namespace yard::python {
namespace {

// What the library does not check of a handle's calls, because it finds the kernel in advance.
struct Form {
  std::string key;               // dtypes, sizes, strides and devices
  std::vector<uint64_t> memory;  // alignments, and how written tensors overlap others
};

struct Bound {
  PartsRef op;
  std::shared_ptr<detail::BoundState> state;
  Form form;
  PyObject* values[YARD_MAX_ARGS] = {};  // owned, by parameter; null where none was given
};

struct Handle {
  PyObject ob_base;
  vectorcallfunc entry;
  Bound* bound;
};
Handle* handle(PyObject* o) { return reinterpret_cast<Handle*>(o); }

// Calls f(tensor, is_written) for all tensors of a call, in the order of the schema.
template <class F>
void each_tensor(const OpParts& op, const yard_value_t* cells, const F& f) {
  for (size_t i = 0; i < op.params.size(); ++i) {
    const yard_value_t& v = cells[i];
    if (v.tag == YARD_TAG_TENSOR) f(*v.u.tensor, op.params[i].written);
    if (v.tag == YARD_TAG_LIST)
      for (uint32_t j = 0; j < v.count; ++j) f(*v.u.list[j], op.params[i].written);
  }
}

void add_form(const OpParts& op, const yard_value_t* cells, FormKey& key) {
  for (size_t i = 0; i < op.params.size(); ++i)
    if (op.params[i].is_tensor()) key.add(cells[i].tag), key.add(cells[i].count);
  each_tensor(op, cells, [&](const yard_tensor_t& t, bool) {
    key.add(t);
    int64_t strides[YARD_MAX_RANK], compact = 1;
    for (int i = t.ndim; i-- > 0; compact *= t.shape[i])
      strides[i] = t.strides != nullptr ? t.strides[i] : compact;
    key.add(strides, static_cast<size_t>(t.ndim) * sizeof(int64_t));
  });
}

struct Extent {
  uintptr_t low, high;
};
Extent extent_of(const yard_tensor_t& t) {
  const auto at = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  int64_t low = 0, high = 1, compact = 1;
  for (int i = t.ndim; i-- > 0; compact *= t.shape[i]) {
    if (t.shape[i] == 0) return {at, at};
    const int64_t reach = (t.shape[i] - 1) * (t.strides != nullptr ? t.strides[i] : compact);
    (reach < 0 ? low : high) += reach;
  }
  const int64_t unit = yard_unit_elements(t.dtype), bytes = yard_unit_bytes(t.dtype);
  return {at + static_cast<uintptr_t>(low / unit * bytes),
          at + static_cast<uintptr_t>((high + unit - 1) / unit * bytes)};
}

// Calls f(word) for all words of Form::memory, until f returns false.
template <class F>
bool each_memory_word(const OpParts& op, const yard_value_t* cells, const F& f) {
  Extent seen[CallFrame::kMost];
  bool written[CallFrame::kMost];
  size_t count = 0;
  bool same = true;
  each_tensor(op, cells, [&](const yard_tensor_t& t, bool writes) {
    const Extent e = seen[count] = extent_of(t);
    written[count] = writes;
    const auto at = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
    same = same && f((at | YARD_MAX_ALIGN) & (0 - (at | YARD_MAX_ALIGN)));
    for (size_t i = 0; i < count && same; ++i)
      if (writes || written[i])
        same = f(e.low < seen[i].high && seen[i].low < e.high ? e.low - seen[i].low : ~uint64_t{0});
    ++count;
  });
  return same;
}

bool has_memory(const Bound& b, const yard_value_t* cells) {
  size_t i = 0;
  return each_memory_word(*b.op, cells, [&](uint64_t word) { return b.form.memory[i++] == word; });
}

PyObject* call_handle(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&]() -> PyObject* {
    const Bound& b = *handle(self)->bound;
    Reading reading(*b.op);
    if (!reading.place(args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names)) return nullptr;
    reading.place_rest(b.values);
    if (!reading.read(true)) return nullptr;
    FormKey key;
    add_form(*b.op, reading.cells(), key);
    if (key.get() != b.form.key)
      return PyErr_Format(
          PyExc_ValueError,
          "a handle of op '%s' was called on tensors of another dtype, shape, strides "
          "or device than it was bound to",
          b.op->name.c_str());
    Status status;
    const bool same = has_memory(b, reading.cells());
    if (!call(*b.op, reading, same ? b.state.get() : nullptr, status)) return nullptr;
    if (status.ok()) return reading.result();
    return raise_status(status, b.op->name.c_str(), reading.frame().failure), nullptr;
  });
}

// Handle(op, *args, **kwargs)
PyObject* handle_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    if (PyTuple_GET_SIZE(args) == 0 || Py_TYPE(PyTuple_GET_ITEM(args, 0)) != g_op_type)
      return PyErr_Format(PyExc_TypeError, "yard.bind: expected an op and its arguments");
    const Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    Handle* const self = handle(made.get());
    self->entry = &call_handle;
    Bound& b = *(self->bound = new Bound{parts_of(PyTuple_GET_ITEM(args, 0)), {}, {}});
    Reading reading(*b.op);
    const Ref names(kwargs != nullptr ? PySequence_Tuple(kwargs) : nullptr);
    std::vector<PyObject*> given(&PyTuple_GET_ITEM(args, 1),
                                 &PyTuple_GET_ITEM(args, 0) + PyTuple_GET_SIZE(args));
    const size_t count = given.size();
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i)
      given.push_back(PyDict_GetItem(kwargs, PyTuple_GET_ITEM(names.get(), i)));
    if (!reading.place(given.data(), count, names.get())) return nullptr;
    for (size_t i = 0; i < b.op->params.size(); ++i) b.values[i] = Py_XNewRef(reading.values()[i]);
    if (!reading.read(true) || !attach(*b.op)) return nullptr;
    FormKey key;
    add_form(*b.op, reading.cells(), key);
    b.form.key = key.get();
    each_memory_word(*b.op, reading.cells(),
                     [&](uint64_t word) { return b.form.memory.push_back(word), true; });
    // The library chooses for the scalars of each call, so these are absent.
    yard_value_t cells[YARD_MAX_ARGS];
    std::copy_n(reading.cells(), YARD_MAX_ARGS, cells);
    for (size_t i = 0; i < b.op->params.size(); ++i)
      if (!b.op->params[i].is_tensor()) cells[i] = {};
    Result<std::shared_ptr<detail::BoundState>> state = Status::out_of_memory();
    {
      const Released others;
      state = detail::make_bound(b.op->site, cells);
    }
    if (!state.ok()) return raise_status(state.status(), b.op->name.c_str()), nullptr;
    b.state = *std::move(state);
    return Py_NewRef(made.get());
  });
}

int handle_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  if (const Bound* const b = handle(o)->bound)
    for (PyObject* value : b->values) Py_VISIT(value);
  return 0;
}
int handle_clear(PyObject* o) {
  if (Bound* const b = handle(o)->bound)
    for (PyObject*& value : b->values) Py_CLEAR(value);
  return 0;
}
void handle_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  handle_clear(o);
  if (Bound* const b = std::exchange(handle(o)->bound, nullptr)) {
    auto state = std::move(b->state);
    delete b;
    const Released others;  // ending a handle may free what was removed
    state.reset();
  }
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* handle_kernel(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    std::string id;
    return in_active_scope([&] { id = detail::bound_kernel(handle(o)->bound->state.get()); })
               ? unicode(id)
               : nullptr;
  });
}
PyObject* handle_repr(PyObject* o) {
  return PyUnicode_FromFormat("<yard handle of op '%s'>", handle(o)->bound->op->name.c_str());
}

PyGetSetDef handle_members[] = {
    {"kernel", &handle_kernel, nullptr,
     "The id of the kernel that would run now; '' if there is none or if scalars decide.", nullptr},
    {}};
PyMemberDef handle_offsets[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Handle, entry), READONLY, nullptr}, {}};
PyType_Slot handle_slots[] = {{Py_tp_new, reinterpret_cast<void*>(&handle_new)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(&handle_dealloc)},
                              {Py_tp_traverse, reinterpret_cast<void*>(&handle_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(&handle_clear)},
                              {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                              {Py_tp_repr, reinterpret_cast<void*>(&handle_repr)},
                              {Py_tp_getset, handle_members},
                              {Py_tp_members, handle_offsets},
                              {}};
PyType_Spec handle_spec = {"yard.Handle", sizeof(Handle), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                           handle_slots};

}  // namespace

bool add_handle_type(PyObject* module) {
  const Ref type(PyType_FromSpec(&handle_spec));
  return type && PyModule_AddObjectRef(module, "Handle", type.get()) == 0;
}

}  // namespace yard::python
