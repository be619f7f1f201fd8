// SPDX-License-Identifier: Apache-2.0
// The class yard.Tensor.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ref.h"
#include "tensors.h"

namespace yard::python {

const char* buffer_format(yard_dtype_t t) {
  if (t.lanes != 1) return nullptr;
  switch (t.code << 8 | t.bits) {
    case 0x008: return "b";
    case 0x010: return "h";
    case 0x020: return "i";
    case 0x040: return "q";
    case 0x108: return "B";
    case 0x110: return "H";
    case 0x120: return "I";
    case 0x140: return "Q";
    case 0x210: return "e";
    case 0x220: return "f";
    case 0x240: return "d";
    case 0x608: return "?";
    default: return nullptr;
  }
}

namespace {

struct OwnTensor {
  PyObject ob_base;
  yard_tensor_t t;
  int64_t dims[2 * YARD_MAX_RANK];
  Py_ssize_t byte_strides[YARD_MAX_RANK];
  Py_buffer buffer;
  PyObject* owner;     // of borrowed memory; may be null
  Py_ssize_t exports;  // buffers over this tensor
  bool has_buffer, read_only;
};

OwnTensor* own(PyObject* o) { return reinterpret_cast<OwnTensor*>(o); }

int64_t numel(const yard_tensor_t& t) {
  int64_t n = 1;
  for (int i = 0; i < t.ndim; ++i) n *= t.shape[i];
  return n;
}

bool read_sizes(PyObject* from, const char* what, int64_t* to, int32_t& count) {
  const Ref list(PySequence_Tuple(from));
  if (!list) return false;
  const Py_ssize_t n = PyTuple_GET_SIZE(list.get());
  if (n > YARD_MAX_RANK) {
    PyErr_Format(PyExc_ValueError, "%s has %zd dimensions; expected at most %d", what, n,
                 YARD_MAX_RANK);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    to[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(list.get(), i));
    if (to[i] == -1 && PyErr_Occurred()) return false;
  }
  count = static_cast<int32_t>(n);
  return true;
}

void set_dims(OwnTensor* self) {
  yard_tensor_t& t = self->t;
  t.shape = self->dims, t.strides = self->dims + YARD_MAX_RANK;
}

PyObject* own_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"buffer", "dtype", "shape", "strides", nullptr};
  PyObject *buffer, *shape, *strides = Py_None;
  const char* dtype_text;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|O:Tensor", const_cast<char**>(names), &buffer,
                                   &dtype_text, &shape, &strides))
    return nullptr;
  const auto dtype = parse_dtype(dtype_text);
  if (!dtype) return PyErr_Format(PyExc_ValueError, "'%s' is not a dtype", dtype_text);
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  OwnTensor* const self = own(made.get());
  self->t.device = {1, 0}, self->t.dtype = to_dlpack(*dtype);
  set_dims(self);
  if (!read_sizes(shape, "shape", self->dims, self->t.ndim)) return nullptr;
  const int64_t unit = *dtype >= DType::q8_0 ? block_elements(*dtype) : 1;
  const int64_t unit_bytes = (bits(*dtype) + 7) / 8;
  // The last byte that the tensor reaches, counted in units and in 128 bits.
  __int128 last = 0, compact = 1;
  bool empty = false;
  for (int i = self->t.ndim; i-- > 0;) {
    self->dims[YARD_MAX_RANK + i] = static_cast<int64_t>(compact);
    if (self->dims[i] < 0) return PyErr_Format(PyExc_ValueError, "shape has a negative size");
    empty |= self->dims[i] == 0;
    compact *= self->dims[i];
    if (compact > INT64_MAX / 64)
      return PyErr_Format(PyExc_ValueError, "shape has too many elements");
  }
  if (strides != Py_None) {
    int32_t count = 0;
    if (!read_sizes(strides, "strides", self->dims + YARD_MAX_RANK, count)) return nullptr;
    if (count != self->t.ndim)
      return PyErr_Format(PyExc_ValueError, "strides has %d numbers; expected %d", count,
                          self->t.ndim);
  }
  if (unit > 1 && (self->t.ndim == 0 || self->dims[self->t.ndim - 1] % unit != 0))
    return PyErr_Format(PyExc_ValueError, "the last size of a %s tensor is a multiple of %lld",
                        dtype_text, static_cast<long long>(unit));
  for (int i = 0; i < self->t.ndim; ++i) {
    const int64_t stride = self->dims[YARD_MAX_RANK + i];
    if (stride < 0) return PyErr_Format(PyExc_ValueError, "a stride is negative");
    last += static_cast<__int128>(std::max<int64_t>(self->dims[i] - 1, 0)) * stride;
  }
  if (PyObject_GetBuffer(buffer, &self->buffer, PyBUF_WRITABLE) != 0) {
    PyErr_Clear();
    self->read_only = true;
    if (PyObject_GetBuffer(buffer, &self->buffer, PyBUF_SIMPLE) != 0) return nullptr;
  }
  self->has_buffer = true;
  const __int128 needed = empty ? 0 : (last / unit + 1) * unit_bytes;
  if (needed > self->buffer.len)
    return PyErr_Format(PyExc_ValueError, "the shape needs %lld bytes, the buffer has %zd",
                        static_cast<long long>(std::min<__int128>(needed, INT64_MAX)),
                        self->buffer.len);
  self->t.data = self->buffer.buf;
  return made.release();
}

int own_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  if (own(o)->has_buffer) Py_VISIT(own(o)->buffer.obj);
  Py_VISIT(own(o)->owner);
  return 0;
}
int own_clear(PyObject* o) {
  if (own(o)->exports > 0) return 0;  // the collector will clear these, which end the cycle too
  own(o)->t.data = nullptr;
  if (std::exchange(own(o)->has_buffer, false)) PyBuffer_Release(&own(o)->buffer);
  Py_CLEAR(own(o)->owner);
  return 0;
}
void own_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  own_clear(o);
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

int own_getbuffer(PyObject* o, Py_buffer* to, int flags) {
  OwnTensor* const self = own(o);
  to->obj = nullptr;
  const char* const format = buffer_format(self->t.dtype);
  if (format == nullptr) {
    PyErr_Format(PyExc_BufferError, "a buffer cannot have the dtype %s",
                 to_string(from_dlpack(self->t.dtype)));
    return -1;
  }
  constexpr int kCpu = 1, kCudaHost = 3;
  if (self->t.device.type != kCpu && self->t.device.type != kCudaHost) {
    PyErr_SetString(PyExc_BufferError, "its memory is on another device than the cpu");
    return -1;
  }
  if ((flags & PyBUF_WRITABLE) != 0 && self->read_only) {
    PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
    return -1;
  }
  const auto size = static_cast<Py_ssize_t>(self->t.dtype.bits / 8);
  for (int i = 0; i < self->t.ndim; ++i) self->byte_strides[i] = self->t.strides[i] * size;
  *to = {};
  to->buf = self->t.data, to->len = numel(self->t) * size, to->itemsize = size;
  to->readonly = self->read_only, to->ndim = self->t.ndim;
  to->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
  to->shape = self->dims, to->strides = self->byte_strides;
  const auto needs = [&](int flag, char order) {
    return (flags & flag) == flag && !PyBuffer_IsContiguous(to, order);
  };
  if (needs(PyBUF_C_CONTIGUOUS, 'C') || needs(PyBUF_F_CONTIGUOUS, 'F') ||
      needs(PyBUF_ANY_CONTIGUOUS, 'A')) {
    PyErr_SetString(PyExc_BufferError, "the tensor has gaps or another order");
    return -1;
  }
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    if (!PyBuffer_IsContiguous(to, 'C')) {
      to->obj = nullptr;
      PyErr_SetString(PyExc_BufferError, "the tensor has gaps or another order");
      return -1;
    }
    to->strides = nullptr;
    if ((flags & PyBUF_ND) == 0) to->shape = nullptr;
  }
  Py_INCREF(o);
  to->obj = o;
  ++self->exports;
  return 0;
}
void own_releasebuffer(PyObject* o, Py_buffer*) { --own(o)->exports; }

PyObject* own_dlpack(PyObject* o, PyObject*, PyObject*) {
  struct Kept {
    DlManaged managed;
    PyObject* object;
  };
  if (yard_is_blocks(own(o)->t.dtype)) {
    PyErr_Format(PyExc_BufferError, "DLPack cannot have the dtype %s",
                 to_string(from_dlpack(own(o)->t.dtype)));
    return nullptr;
  }
  if (own(o)->has_buffer && own(o)->read_only) {
    PyErr_SetString(PyExc_BufferError, "the tensor is read-only, which a capsule cannot say");
    return nullptr;
  }
  auto* const kept = new Kept{};
  std::memcpy(&kept->managed.t, &own(o)->t, sizeof(DlTensor));
  kept->object = o;
  Py_INCREF(o);
  kept->managed.context = kept;
  kept->managed.deleter = [](DlManaged* m) {
    auto* const k = static_cast<Kept*>(m->context);
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF(k->object);
    PyGILState_Release(gil);
    delete k;
  };
  return PyCapsule_New(&kept->managed, DlManaged::kName, [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, DlManaged::kName)) return;
    auto* const m = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule, DlManaged::kName));
    m->deleter(m);
  });
}

PyObject* own_device(PyObject* o, PyObject*) {
  return Py_BuildValue("ii", own(o)->t.device.type, own(o)->t.device.index);
}

PyObject* tuple_of(const int64_t* numbers, int count) {
  PyObject* const to = PyTuple_New(count);
  for (int i = 0; to != nullptr && i < count; ++i)
    PyTuple_SET_ITEM(to, i, PyLong_FromLongLong(numbers[i]));
  return to;
}

PyObject* own_shape(PyObject* o, void*) { return tuple_of(own(o)->t.shape, own(o)->t.ndim); }
PyObject* own_strides(PyObject* o, void*) { return tuple_of(own(o)->t.strides, own(o)->t.ndim); }
PyObject* own_dtype(PyObject* o, void*) {
  return PyUnicode_FromString(to_string(from_dlpack(own(o)->t.dtype)));
}
PyObject* own_repr(PyObject* o) {
  const Ref shape(own_shape(o, nullptr));
  if (!shape) return nullptr;
  return PyUnicode_FromFormat("yard.Tensor(dtype='%s', shape=%R)",
                              to_string(from_dlpack(own(o)->t.dtype)), shape.get());
}

PyMethodDef own_methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(&own_dlpack)),
     METH_VARARGS | METH_KEYWORDS, "Returns a capsule of DLPack."},
    {"__dlpack_device__", &own_device, METH_NOARGS, "Returns the device as DLPack's numbers."},
    {}};
PyGetSetDef own_members[] = {
    {"shape", &own_shape, nullptr, "The sizes.", nullptr},
    {"strides", &own_strides, nullptr, "The strides, in elements.", nullptr},
    {"dtype", &own_dtype, nullptr, "The name of the dtype, such as 'q4_1'.", nullptr},
    {}};
PyType_Slot own_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&own_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&own_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(&own_repr)},
    {Py_tp_methods, own_methods},
    {Py_tp_getset, own_members},
    {Py_tp_traverse, reinterpret_cast<void*>(&own_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&own_clear)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(&own_getbuffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(&own_releasebuffer)},
    {Py_tp_doc,
     const_cast<char*>(
         "Tensor(buffer, dtype, shape, strides=None)\n--\n\n"
         "A tensor over the memory of a buffer, of any dtype. Strides count elements.\n\n"
         ">>> import yard\n>>> yard.Tensor(bytes(2 * 20), 'q4_1', (2, 32))\n"
         "yard.Tensor(dtype='q4_1', shape=(2, 32))")},
    {}};
PyType_Spec own_spec = {"yard.Tensor", sizeof(OwnTensor), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, own_slots};

}  // namespace

PyTypeObject* g_own_type = nullptr;

bool add_own_type(PyObject* module) {
  g_own_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&own_spec));
  return g_own_type != nullptr &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(g_own_type)) == 0;
}

bool read_own(PyObject* object, bool writes, yard_tensor_t& to) {
  if (writes && own(object)->read_only) {
    PyErr_SetString(PyExc_ValueError, "its memory is read-only, and the call writes to it");
    return false;
  }
  to = own(object)->t;
  return true;
}

PyObject* lend_tensor(const yard_tensor_t& t, PyObject* owner, bool read_only) {
  Ref made(g_own_type->tp_alloc(g_own_type, 0));
  if (!made) return nullptr;
  OwnTensor* const self = own(made.get());
  self->owner = Py_XNewRef(owner), self->read_only = read_only;
  self->t = t;
  self->t.data = static_cast<char*>(t.data) + t.byte_offset, self->t.byte_offset = 0;
  self->t.facts = 0, self->t.origin = nullptr;
  std::copy_n(t.shape, t.ndim, self->dims);
  int64_t compact = 1;
  for (int i = t.ndim; i-- > 0; compact *= t.shape[i])
    self->dims[YARD_MAX_RANK + i] = t.strides != nullptr ? t.strides[i] : compact;
  set_dims(self);
  return made.release();
}

}  // namespace yard::python
