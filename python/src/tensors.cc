// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ref.h"

namespace yard::python {
namespace {

PyObject* imported(const char* module) {  // borrowed; null if nobody has imported it
  return PyDict_GetItemString(PyImport_GetModuleDict(), module);
}

// Looks up names like "nn.Parameter" in a module. Returns an empty Ref without a Python error.
Ref attribute(PyObject* of, std::string_view path) {
  Ref at = Ref::borrow(of);
  while (at && !path.empty()) {
    const size_t dot = path.find('.');
    at = Ref(PyObject_GetAttrString(at.get(), std::string(path.substr(0, dot)).c_str()));
    path = dot == path.npos ? "" : path.substr(dot + 1);
  }
  if (!at) PyErr_Clear();
  return at;
}

// Returns the functions that the class states itself, since a subclass may have other memory.
const DlExchange* exchange_of(PyTypeObject* type) {
  const Ref capsule = attribute(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (!capsule || !PyCapsule_IsValid(capsule.get(), DlExchange::kName)) return nullptr;
  const auto* e =
      static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.get(), DlExchange::kName));
  while (e != nullptr && e->version.major != DlExchange::kMajor) e = e->previous;
  return e != nullptr && e->borrow != nullptr && e->to_object != nullptr && e->allocate != nullptr
             ? e
             : nullptr;
}

bool states_exchange(PyTypeObject* type) {
  return type->tp_dict != nullptr &&
         PyDict_GetItemString(type->tp_dict, "__dlpack_c_exchange_api__") != nullptr;
}

// Whether a class is one of two classes of a module, or a subclass of the first.
enum class Match : uint8_t { kOther, kIs, kDerived };
Match match(PyTypeObject* type, const char* module, const char* first, const char* second) {
  PyObject* const found = imported(module);
  if (found == nullptr) return Match::kOther;
  const Ref one = attribute(found, first), two = attribute(found, second);
  const auto* const object = reinterpret_cast<PyObject*>(type);
  if (one.get() == object || two.get() == object) return Match::kIs;
  const bool derived = one && PyType_Check(one.get()) &&
                       PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(one.get()));
  return derived ? Match::kDerived : Match::kOther;
}

TensorClass classify(PyTypeObject* type) {
  TensorClass to{type};
  if (type == g_own_type) {
    to.source = Source::kOwn;
    return to;
  }
  const Match torch = match(type, "torch", "Tensor", "nn.Parameter");
  const Match numpy = match(type, "numpy", "ndarray", "memmap");
  if (torch == Match::kIs) {
    to.exchange = exchange_of(type);
    to.source = to.exchange != nullptr ? Source::kExchange : Source::kTorch;
    to.framework = Framework::kTorch;
    return to;
  }
  if (numpy == Match::kIs) {
    to.source = Source::kBuffer, to.framework = Framework::kNumpy;
    return to;
  }
  if (torch == Match::kDerived || numpy == Match::kDerived) {
    to.source = Source::kSubclass;
    return to;
  }
  if (states_exchange(type) && (to.exchange = exchange_of(type)) != nullptr)
    to.source = Source::kExchange, to.framework = Framework::kExchange;
  else if (attribute(reinterpret_cast<PyObject*>(type), "__dlpack__"))
    to.source = Source::kDlpack;
  else if (type->tp_as_buffer != nullptr && type->tp_as_buffer->bf_getbuffer != nullptr)
    to.source = Source::kBuffer;
  return to;
}

// The dtype of a buffer's elements, or one with 0 bits.
yard_dtype_t buffer_dtype(const Py_buffer& b) {
  const char* f = b.format != nullptr ? b.format : "B";
  if (*f == '@' || *f == '=' || *f == '<') ++f;
  if (f[0] == '\0' || f[1] != '\0' || b.itemsize < 1 || b.itemsize > 8) return {};
  const auto bits = static_cast<uint8_t>(8 * b.itemsize);
  if (*f == '?') return {6, bits, 1};
  if (std::strchr("bhilqn", *f) != nullptr) return {0, bits, 1};
  if (std::strchr("BHILQN", *f) != nullptr) return {1, bits, 1};
  if (std::strchr("efd", *f) != nullptr) return {2, bits, 1};
  return {};
}

// A view of torch may stand for the negative of its memory.
bool is_plain(PyObject* torch_tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const Ref negative(PyObject_CallMethodNoArgs(torch_tensor, name));
  if (!negative) return false;
  if (negative.get() == Py_True)
    PyErr_SetString(PyExc_ValueError, "it is a negative view; pass its resolve_neg()");
  return negative.get() != Py_True;
}

}  // namespace

TensorClass class_of(PyObject* object) {
  static auto& known = *new std::vector<TensorClass>;  // under the GIL
  PyTypeObject* const type = Py_TYPE(object);
  for (const TensorClass& c : known)
    if (c.type == type) return c;
  TensorClass made = classify(type);
  // A class without tensors may become one, and programs may make any number of classes.
  if (made.source == Source::kNone || known.size() >= 64) return made;
  Py_INCREF(type);  // so that its address stays its own
  known.push_back(made);
  return made;
}

bool TensorArg::take(const DlTensor& from) {
  std::memcpy(&t, &from, sizeof from);
  t.facts = 0, t.origin = nullptr;
  if (t.ndim >= 0 && t.ndim <= YARD_MAX_RANK) return true;
  PyErr_Format(PyExc_ValueError, "it has %d dimensions; expected at most %d", t.ndim,
               YARD_MAX_RANK);
  return false;
}

bool TensorArg::read(PyObject* from, const TensorClass& of, bool writes) {
  object = from;
  switch (of.source) {
    case Source::kExchange: {
      DlTensor borrowed;
      if (of.exchange->borrow(from, &borrowed) != 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "its class gave no tensor");
        return false;
      }
      return (of.framework != Framework::kTorch || is_plain(from)) && take(borrowed);
    }
    case Source::kOwn: return read_own(from, writes, t);
    case Source::kBuffer: return read_buffer(writes);
    case Source::kTorch: {
      if (!is_plain(from)) return false;
      // detach(), since torch refuses to export tensors that require gradients.
      static PyObject* const detach = PyUnicode_InternFromString("detach");
      const Ref plain(PyObject_CallMethodNoArgs(from, detach));
      if (!plain) return false;
      const Ref capsule(PyObject_CallMethod(plain.get(), "__dlpack__", nullptr));
      return capsule && read_capsule(capsule.get(), writes);
    }
    case Source::kDlpack: {
      const Ref capsule(PyObject_CallMethod(from, "__dlpack__", nullptr));
      return capsule && read_capsule(capsule.get(), writes);
    }
    case Source::kSubclass:
      PyErr_Format(PyExc_TypeError,
                   "expected a tensor, got %s, a subclass that may keep its elements elsewhere",
                   of.type->tp_name);
      return false;
    case Source::kNone: break;
  }
  PyErr_Format(PyExc_TypeError,
               "expected a tensor (of torch, of numpy, or with __dlpack__), got %s",
               Py_TYPE(from)->tp_name);
  return false;
}

bool TensorArg::read_buffer(bool writes) {
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_RECORDS_RO) != 0) return false;
  held_ = Held::kBuffer;
  if (writes && buffer_.readonly) {
    PyErr_SetString(PyExc_ValueError, "its memory is read-only, and the call writes to it");
    return false;
  }
  t = {buffer_.buf, {1, 0}, buffer_.ndim, buffer_dtype(buffer_), buffer_.shape, nullptr,
       0,           0,      nullptr};
  if (t.dtype.bits == 0) {
    PyErr_Format(PyExc_TypeError, "no dtype stands for elements of format '%s' with %zd bytes",
                 buffer_.format != nullptr ? buffer_.format : "B", buffer_.itemsize);
    return false;
  }
  if (t.ndim > YARD_MAX_RANK) {
    PyErr_Format(PyExc_ValueError, "it has %d dimensions; expected at most %d", t.ndim,
                 YARD_MAX_RANK);
    return false;
  }
  if (t.ndim == 0 || PyBuffer_IsContiguous(&buffer_, 'C')) return true;
  t.strides = strides_;
  for (int i = 0; i < t.ndim; ++i) {
    if (buffer_.strides[i] % buffer_.itemsize != 0) {
      PyErr_Format(PyExc_ValueError,
                   "a stride of %zd bytes is no multiple of its elements of %zd bytes",
                   buffer_.strides[i], buffer_.itemsize);
      return false;
    }
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  return true;
}

bool TensorArg::read_capsule(PyObject* capsule, bool writes) {
  if (PyCapsule_IsValid(capsule, DlManaged::kName)) {
    managed_ = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule, DlManaged::kName));
    held_ = Held::kManaged;
    PyCapsule_SetName(capsule, DlManaged::kUsedName);
    return take(managed_->t);
  }
  if (PyCapsule_IsValid(capsule, DlManagedVersioned::kName)) {
    versioned_ =
        static_cast<DlManagedVersioned*>(PyCapsule_GetPointer(capsule, DlManagedVersioned::kName));
    held_ = Held::kVersioned;
    PyCapsule_SetName(capsule, DlManagedVersioned::kUsedName);
    if (versioned_->version.major != DlExchange::kMajor) {
      PyErr_Format(PyExc_BufferError, "it has version %u of DLPack; expected 1",
                   versioned_->version.major);
      return false;
    }
    if (writes && (versioned_->flags & kDlReadOnly) != 0) {
      PyErr_SetString(PyExc_ValueError, "its memory is read-only, and the call writes to it");
      return false;
    }
    return take(versioned_->t);
  }
  PyErr_SetString(PyExc_TypeError, "its __dlpack__ returned no capsule of DLPack");
  return false;
}

void TensorArg::release() noexcept {
  switch (std::exchange(held_, Held::kNothing)) {
    case Held::kNothing: return;
    case Held::kBuffer: return PyBuffer_Release(&buffer_);
    case Held::kManaged:
      if (managed_->deleter != nullptr) managed_->deleter(managed_);
      return;
    case Held::kVersioned:
      if (versioned_->deleter != nullptr) versioned_->deleter(versioned_);
      return;
  }
}

bool grad_mode() {
  static PyObject* const enabled = [] {
    PyObject* const torch = imported("torch");
    return torch != nullptr ? attribute(torch, "is_grad_enabled").release() : nullptr;
  }();
  if (enabled == nullptr) return false;
  const Ref on(PyObject_CallNoArgs(enabled));
  if (!on) PyErr_Clear();
  return on.get() == Py_True;
}

int requires_grad(PyObject* torch_tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const Ref value(PyObject_GetAttr(torch_tensor, name));
  return value ? PyObject_IsTrue(value.get()) : -1;
}

namespace {

// The words of torch and numpy for a dtype, or null.
const char* library_dtype(DType t, bool torch) {
  switch (t) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::f64: return "float64";
    case DType::i8: return "int8";
    case DType::i16: return "int16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
    case DType::bf16: return torch ? "bfloat16" : nullptr;
    case DType::f8e4m3: return torch ? "float8_e4m3fn" : nullptr;
    case DType::f8e5m2: return torch ? "float8_e5m2" : nullptr;
    case DType::u16: return "uint16";
    case DType::u32: return "uint32";
    case DType::u64: return "uint64";
    case DType::boolean: return torch ? "bool" : "bool_";
    default: return nullptr;
  }
}

struct Library {  // the functions of torch or numpy that make tensors
  Ref module, empty;
  std::array<Ref, 32> dtypes;

  explicit Library(const char* name) : module(Ref::borrow(imported(name))) {
    if (module) empty = attribute(module.get(), "empty");
  }
  PyObject* dtype(DType t, bool torch) {
    Ref& at = dtypes[static_cast<size_t>(t) % dtypes.size()];
    const char* const word = library_dtype(t, torch);
    if (!at && word != nullptr) at = attribute(module.get(), word);
    return at.get();
  }
};

PyObject* make_by_exchange(const TensorClass& of, const yard_tensor_t& like, DType dtype,
                           PyObject* shape) {
  int64_t sizes[YARD_MAX_RANK];
  const Py_ssize_t rank = PyTuple_GET_SIZE(shape);
  for (Py_ssize_t i = 0; i < rank; ++i) sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
  DlTensor prototype{
      nullptr, like.device, static_cast<int32_t>(rank), to_dlpack(dtype), sizes, nullptr, 0};
  std::string failure;
  DlManagedVersioned* made = nullptr;
  const int failed = of.exchange->allocate(
      &prototype, &made, &failure, [](void* to, const char*, const char* text) {
        *static_cast<std::string*>(to) = text != nullptr ? text : "";
      });
  if (failed != 0) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "%s", failure.c_str());
    return nullptr;
  }
  void* object = nullptr;
  if (of.exchange->to_object(made, &object) != 0) {
    if (made != nullptr && made->deleter != nullptr) made->deleter(made);
    return nullptr;
  }
  return static_cast<PyObject*>(object);
}

}  // namespace

PyObject* make_tensor(const TensorArg& like, const TensorClass& of, DType dtype, PyObject* shape) {
  if (of.framework == Framework::kExchange) return make_by_exchange(of, like.t, dtype, shape);
  const bool is_torch = of.framework == Framework::kTorch;
  // Kept beyond the end of the interpreter. Looked up again while a thread imports the library.
  static Library *torch = nullptr, *numpy = nullptr;
  Library*& found = is_torch ? torch : numpy;
  if (found == nullptr || !found->empty) found = new Library(is_torch ? "torch" : "numpy");
  Library& library = *found;
  PyObject* const type = library.empty ? library.dtype(dtype, is_torch) : nullptr;
  if (type == nullptr) {
    PyErr_Format(PyExc_TypeError, "%s has no dtype for an output of %s: give the output",
                 is_torch ? "torch" : "numpy", to_string(dtype));
    return nullptr;
  }
  static PyObject* const names = [] {
    PyObject* const t = PyTuple_New(2);
    PyTuple_SET_ITEM(t, 0, PyUnicode_InternFromString("dtype"));
    PyTuple_SET_ITEM(t, 1, PyUnicode_InternFromString("device"));
    return t;
  }();
  static PyObject* const one_name = PyTuple_GetSlice(names, 0, 1);
  PyObject* args[3] = {shape, type, nullptr};
  Ref device;
  if (is_torch && like.t.device.type != 1) {
    device = attribute(like.object, "device");
    args[2] = device.get();
  }
  return PyObject_Vectorcall(library.empty.get(), args, 1, args[2] != nullptr ? names : one_name);
}

PyObject* to_library(PyObject* tensor, bool torch) {
  yard_tensor_t t;
  if (!read_own(tensor, false, t)) return nullptr;
  const char* const name = torch ? "torch" : "numpy";
  PyObject* const module = imported(name);
  const Ref convert =
      module != nullptr ? attribute(module, torch ? "utils.dlpack.from_dlpack" : "asarray") : Ref();
  if (!convert) return PyErr_Format(PyExc_ImportError, "%s is not imported", name);
  if (!torch && buffer_format(t.dtype) == nullptr)
    return PyErr_Format(PyExc_TypeError, "numpy has no dtype %s", to_string(from_dlpack(t.dtype)));
  // torch ends the process for these.
  for (int i = 0; torch && i < t.ndim; ++i)
    if (t.strides[i] < 0)
      return PyErr_Format(PyExc_TypeError, "torch has no tensors with negative strides");
  return PyObject_CallOneArg(convert.get(), tensor);
}

}  // namespace yard::python
