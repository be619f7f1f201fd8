// SPDX-License-Identifier: Apache-2.0
#include "bound.h"

#include <structmember.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gil.h"
#include "policy.h"
#include "reading.h"

namespace yard::python {
namespace {

// What the library does not check in calls of a handle, because it finds the kernel in advance.
struct BoundTensor {
  yard_tensor_t t;  // its sizes and strides are in `dims`
  int64_t dims[2 * YARD_MAX_RANK];
  int64_t low, high;  // the bytes that it covers, relative to its address
  bool written;
};

struct Bound {
  explicit Bound(const PartsRef& parts) : op(parts) {}

  PartsRef op;
  std::shared_ptr<detail::BoundState> state;
  std::vector<BoundTensor> tensors;      // in the order of the schema
  std::vector<uint64_t> memory;          // see each_memory_word()
  uint32_t counts[YARD_MAX_ARGS];        // tensors of each parameter
  PyObject* values[YARD_MAX_ARGS] = {};  // owned, by parameter; null where none was given
};

struct Handle {
  PyObject ob_base;
  vectorcallfunc entry;
  Bound* bound;
};
Handle* handle(PyObject* o) { return reinterpret_cast<Handle*>(o); }

std::span<const yard_tensor_t* const> tensors_of(const yard_value_t& v) {
  if (v.tag == YARD_TAG_LIST) return {v.u.list, v.count};
  return {&v.u.tensor, v.tag == YARD_TAG_TENSOR ? size_t{1} : size_t{0}};
}

int64_t stride(const yard_tensor_t& t, int i, int64_t compact) {
  return t.strides != nullptr ? t.strides[i] : compact;
}

void remember(Bound& b, const yard_value_t* cells) {
  for (size_t i = 0; i < b.op->params.size(); ++i) {
    const auto tensors = tensors_of(cells[i]);
    b.counts[i] = static_cast<uint32_t>(tensors.size());
    for (const yard_tensor_t* t : tensors) {
      BoundTensor to{*t, {}, 0, 0, b.op->params[i].written};
      int64_t low = 0, high = 1, compact = 1;
      for (int d = t->ndim; d-- > 0; compact *= t->shape[d]) {
        to.dims[d] = t->shape[d], to.dims[YARD_MAX_RANK + d] = stride(*t, d, compact);
        const int64_t reach = (t->shape[d] - 1) * to.dims[YARD_MAX_RANK + d];
        (reach < 0 ? low : high) += reach;
      }
      const int64_t unit = yard_unit_elements(t->dtype), bytes = yard_unit_bytes(t->dtype);
      to.low = low / unit * bytes;
      to.high = compact != 0 ? (high + unit - 1) / unit * bytes : to.low;
      b.tensors.push_back(to);
    }
  }
}

// Whether the tensors have the dtypes, sizes, strides and devices that the handle was bound to.
bool has_form(const Bound& b, const yard_value_t* cells) {
  const BoundTensor* known = b.tensors.data();
  for (size_t i = 0; i < b.op->params.size(); ++i) {
    if (!b.op->params[i].is_tensor()) continue;
    const auto tensors = tensors_of(cells[i]);
    if (tensors.size() != b.counts[i]) return false;
    for (const yard_tensor_t* t : tensors) {
      const BoundTensor& k = *known++;
      if (t->ndim != k.t.ndim || std::memcmp(&t->dtype, &k.t.dtype, sizeof t->dtype) != 0 ||
          std::memcmp(&t->device, &k.t.device, sizeof t->device) != 0)
        return false;
      int64_t compact = 1;
      for (int d = t->ndim; d-- > 0; compact *= t->shape[d])
        if (t->shape[d] != k.dims[d] ||
            (k.dims[d] > 1 && stride(*t, d, compact) != k.dims[YARD_MAX_RANK + d]))
          return false;
    }
  }
  return true;
}

// Calls f(word) for the alignment of each tensor, for the strides of dimensions of size 1, and for
// the distances of tensors that overlap, of which one is written, until f returns false. The kernel
// may depend on these, although callers do not care.
template <class F>
bool each_memory_word(const Bound& b, const yard_value_t* cells, const F& f) {
  uintptr_t at[CallFrame::kMost];
  size_t n = 0;
  for (size_t i = 0; i < b.op->params.size(); ++i) {
    if (!b.op->params[i].is_tensor()) continue;
    for (const yard_tensor_t* t : tensors_of(cells[i])) {
      const BoundTensor& k = b.tensors[n];
      at[n] = reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
      if (!f((at[n] | YARD_MAX_ALIGN) & (0 - (at[n] | YARD_MAX_ALIGN)))) return false;
      for (int d = 0; t->strides != nullptr && d < t->ndim; ++d)
        if (t->shape[d] == 1 && !f(static_cast<uint64_t>(t->strides[d]))) return false;
      for (size_t j = 0; j < n; ++j) {
        const BoundTensor& o = b.tensors[j];
        if (!k.written && !o.written) continue;
        const auto distance = static_cast<int64_t>(at[n] - at[j]);
        const bool overlaps = distance + k.low < o.high && o.low < distance + k.high;
        if (!f(overlaps ? static_cast<uint64_t>(distance) : ~uint64_t{0})) return false;
      }
      ++n;
    }
  }
  return true;
}

bool has_memory(const Bound& b, const yard_value_t* cells) {
  const uint64_t* known = b.memory.data();
  return each_memory_word(b, cells, [&](uint64_t word) { return *known++ == word; });
}

PyObject* call_handle(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&]() -> PyObject* {
    const Bound& b = *handle(self)->bound;
    Reading reading(*b.op);
    if (!reading.place(args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names)) return nullptr;
    reading.place_rest(b.values);
    if (!reading.read(true)) return nullptr;
    if (!has_form(b, reading.cells()))
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
    Bound& b = *(self->bound = new Bound(parts_of(PyTuple_GET_ITEM(args, 0))));
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
    remember(b, reading.cells());
    each_memory_word(b, reading.cells(),
                     [&](uint64_t word) { return b.memory.push_back(word), true; });
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
    if (reading.frame().raise_interrupt()) return nullptr;
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
    CallFrame frame;  // keeps a KeyboardInterrupt of a verifier
    std::string id;
    const bool done =
        in_active_scope([&] { id = detail::bound_kernel(handle(o)->bound->state.get()); });
    return done && !frame.raise_interrupt() ? unicode(id) : nullptr;
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
