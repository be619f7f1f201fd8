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

// The beginning of arrays and dtypes of numpy, which its C interface states for versions 1 and 2.
struct NumpyDtype {
  PyObject ob_base;
  PyTypeObject* type;
  char kind, letter, byte_order;
};
struct NumpyArray {
  PyObject ob_base;
  char* data;
  int ndim;
  const Py_ssize_t *shape, *byte_strides;
  PyObject* base;
  const NumpyDtype* dtype;
  int flags;
  static constexpr int kCompact = 1, kWriteable = 0x400;
};
bool knows_numpy_arrays() {
  const Ref version = attribute(imported("numpy"), "__version__");
  const char* const text =
      version && PyUnicode_Check(version.get()) ? PyUnicode_AsUTF8(version.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text != nullptr && (text[0] == '1' || text[0] == '2') && text[1] == '.';
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
    to.source = knows_numpy_arrays() ? Source::kNumpy : Source::kBuffer;
    to.framework = Framework::kNumpy;
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

// The dtype for a letter of the module `struct`, or one with 0 bits.
constexpr yard_dtype_t letter_dtype(char letter) {
  switch (letter) {
    case '?': return {6, 8, 1};
    case 'b': return {0, 8, 1};
    case 'h': return {0, 16, 1};
    case 'i': return {0, 32, 1};
    case 'l':
    case 'q':
    case 'n': return {0, 64, 1};
    case 'B': return {1, 8, 1};
    case 'H': return {1, 16, 1};
    case 'I': return {1, 32, 1};
    case 'L':
    case 'Q':
    case 'N': return {1, 64, 1};
    case 'e': return {2, 16, 1};
    case 'f': return {2, 32, 1};
    case 'd': return {2, 64, 1};
    default: return {};
  }
}
yard_dtype_t buffer_dtype(const Py_buffer& b) {
  const char* f = b.format != nullptr ? b.format : "B";
  if (*f == '@' || *f == '=' || *f == '<') ++f;
  if (f[0] == '\0' || f[1] != '\0') return {};
  const yard_dtype_t to = letter_dtype(*f);
  return to.bits == 8 * b.itemsize ? to : yard_dtype_t{};
}

// A view of torch may stand for the negative of its memory. Such a view is the imaginary part of
// complex numbers, so its address is odd in units of elements, and other tensors need no call.
bool is_plain(PyObject* torch_tensor, const DlTensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  if ((address & (t.dtype.bits / 8)) == 0) return true;
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const Ref negative(PyObject_CallMethodNoArgs(torch_tensor, name));
  if (!negative) return false;
  if (negative.get() == Py_True)
    PyErr_SetString(PyExc_ValueError, "it is a negative view; pass its resolve_neg()");
  return negative.get() != Py_True;
}

}  // namespace

const TensorClass& class_of(PyObject* object) {
  constexpr size_t kMost = 64;
  static TensorClass known[kMost + 1];  // under the GIL
  static size_t count = 0;
  PyTypeObject* const type = Py_TYPE(object);
  for (size_t i = 0; i < count; ++i)
    if (known[i].type == type) return known[i];
  const TensorClass made = classify(type);
  TensorClass& to = known[count] = made;
  // A class without tensors may become one, and programs may make any number of classes.
  if (made.source == Source::kNone || count == kMost) return to;
  Py_INCREF(type);  // so that its address stays its own
  ++count;
  return to;
}

bool TensorArg::take(const DlTensor& from) {
  std::memcpy(&t, &from, sizeof from);
  t.facts = 0, t.origin = nullptr;
  if (yard_dtype_index(t.dtype) == 0) {
    PyErr_Format(PyExc_TypeError, "no dtype stands for elements of DLPack's type %d with %d bits%s",
                 t.dtype.code, t.dtype.bits, t.dtype.code == 5 ? " (complex)" : "");
    return false;
  }
  if (t.ndim >= 0 && t.ndim <= YARD_MAX_RANK) return true;
  PyErr_Format(PyExc_ValueError, "it has %d dimensions; expected at most %d", t.ndim,
               YARD_MAX_RANK);
  return false;
}

bool TensorArg::read(PyObject* from, const TensorClass& of, bool writes) {
  object = from, framework = of.framework;
  switch (of.source) {
    case Source::kExchange: {
      DlTensor borrowed;
      if (of.exchange->borrow(from, &borrowed) != 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "its class gave no tensor");
        return false;
      }
      return (of.framework != Framework::kTorch || is_plain(from, borrowed)) && take(borrowed);
    }
    case Source::kOwn: return read_own(from, writes, t);
    case Source::kNumpy: return read_numpy(writes);
    case Source::kBuffer: return read_buffer(writes);
    case Source::kTorch: {
      // detach(), since torch refuses to export tensors that require gradients.
      static PyObject* const detach = PyUnicode_InternFromString("detach");
      const Ref plain(PyObject_CallMethodNoArgs(from, detach));
      if (!plain) return false;
      const Ref capsule(PyObject_CallMethod(plain.get(), "__dlpack__", nullptr));
      if (!capsule || !read_capsule(capsule.get(), writes)) return false;
      DlTensor read;
      std::memcpy(&read, &t, sizeof read);
      return is_plain(from, read);
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

static bool refuse_read_only() {
  PyErr_SetString(PyExc_ValueError, "its memory is read-only, and the call writes to it");
  return false;
}

bool TensorArg::read_numpy(bool writes) {
  const auto& a = *reinterpret_cast<const NumpyArray*>(object);
  const yard_dtype_t dtype = letter_dtype(a.dtype->letter);
  // The buffer protocol explains what is wrong.
  if (dtype.bits == 0 || a.dtype->byte_order == '>' || a.ndim > YARD_MAX_RANK)
    return read_buffer(writes);
  if (writes && (a.flags & NumpyArray::kWriteable) == 0) return refuse_read_only();
  t = {a.data, {1, 0}, a.ndim, dtype, shape_, nullptr, 0, 0, nullptr};
  for (int i = 0; i < a.ndim; ++i) shape_[i] = a.shape[i];
  if ((a.flags & NumpyArray::kCompact) != 0) return true;
  return take_strides(a.byte_strides, dtype.bits / 8);
}

bool TensorArg::take_strides(const Py_ssize_t* bytes, Py_ssize_t item) {
  t.strides = strides_;
  for (int i = 0; i < t.ndim; ++i) {
    if (bytes[i] % item != 0) {
      PyErr_Format(PyExc_ValueError,
                   "a stride of %zd bytes is no multiple of its elements of %zd bytes", bytes[i],
                   item);
      return false;
    }
    strides_[i] = bytes[i] / item;
  }
  return true;
}

bool TensorArg::read_buffer(bool writes) {
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_RECORDS_RO) != 0) return false;
  held_ = Held::kBuffer;
  if (writes && buffer_.readonly) return refuse_read_only();
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
  return take_strides(buffer_.strides, buffer_.itemsize);
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
    if (writes && (versioned_->flags & kDlReadOnly) != 0) return refuse_read_only();
    return take(versioned_->t);
  }
  PyErr_SetString(PyExc_TypeError, "its __dlpack__ returned no capsule of DLPack");
  return false;
}

void TensorArg::release() noexcept {
  switch (held_) {
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
  // A function in C is called directly, in half the time.
  const bool direct =
      PyCFunction_CheckExact(enabled) && PyCFunction_GET_FLAGS(enabled) == METH_NOARGS;
  const Ref on(direct ? PyCFunction_GET_FUNCTION(enabled)(PyCFunction_GET_SELF(enabled), nullptr)
                      : PyObject_CallNoArgs(enabled));
  if (!on) PyErr_Clear();
  return on.get() == Py_True;
}

int requires_grad(PyObject* torch_tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  // The attribute of exactly torch.Tensor and Parameter. Looking it up would take longer.
  static const PyGetSetDef* const known = [] {
    const Ref d = attribute(imported("torch"), "Tensor.requires_grad");
    return d && Py_TYPE(d.get()) == &PyGetSetDescr_Type
               ? reinterpret_cast<PyGetSetDescrObject*>(d.get())->d_getset
               : nullptr;
  }();
  const Ref value(known != nullptr ? known->get(torch_tensor, known->closure)
                                   : PyObject_GetAttr(torch_tensor, name));
  return value ? value.get() == Py_True : -1;
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

struct Library {  // the function of torch or numpy that makes tensors
  Ref module, make;
  std::array<Ref, 32> dtypes;

  Library(const char* name, const char* function) : module(Ref::borrow(imported(name))) {
    if (module) make = attribute(module.get(), function);
  }
  PyObject* dtype(DType t, bool torch) {
    Ref& at = dtypes[static_cast<size_t>(t) % dtypes.size()];
    const char* const word = library_dtype(t, torch);
    if (!at && word != nullptr) at = attribute(module.get(), word);
    return at.get();
  }
};

// Calls like.new_empty(*shape), which keeps to the device of `like` whatever torch's default is.
PyObject* make_torch(PyObject* new_empty, const TensorArg& like, PyObject* dtype, PyObject* shape) {
  // new_empty(4, 8) takes half the time of new_empty((4, 8)).
  const Ref sizes = PyTuple_GET_SIZE(shape) > 0 ? Ref::borrow(shape) : Ref(PyTuple_Pack(1, shape));
  const Ref named(dtype != nullptr ? Py_BuildValue("{sO}", "dtype", dtype) : nullptr);
  if (!sizes || (dtype != nullptr && !named)) return nullptr;
  if (Py_TYPE(new_empty) == &PyMethodDescr_Type) {
    const PyMethodDef& f = *reinterpret_cast<PyMethodDescrObject*>(new_empty)->d_method;
    if (f.ml_flags == (METH_VARARGS | METH_KEYWORDS))  // without copying the sizes
      return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)(void)>(f.ml_meth))(
          like.object, sizes.get(), named.get());
  }
  const Ref method(PyObject_GetAttrString(like.object, "new_empty"));
  return method ? PyObject_Call(method.get(), sizes.get(), named.get()) : nullptr;
}

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
  if (found == nullptr || !found->make)
    found = is_torch ? new Library("torch", "Tensor.new_empty") : new Library("numpy", "empty");
  PyObject* const type = found->make ? found->dtype(dtype, is_torch) : nullptr;
  if (type == nullptr) {
    PyErr_Format(PyExc_TypeError, "%s has no dtype for an output of %s: give the output",
                 is_torch ? "torch" : "numpy", to_string(dtype));
    return nullptr;
  }
  PyObject* const make = found->make.get();
  const bool same = from_dlpack(like.t.dtype) == dtype;
  if (is_torch) return make_torch(make, like, same ? nullptr : type, shape);
  PyObject* const args[] = {shape, type};
  return PyObject_Vectorcall(make, args, 2, nullptr);
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
  if (!torch && t.device.type != 1)  // numpy would make an array of one object
    return PyErr_Format(PyExc_TypeError, "numpy has only arrays on the cpu");
  // torch ends the process for these.
  for (int i = 0; torch && i < t.ndim; ++i)
    if (t.strides[i] < 0)
      return PyErr_Format(PyExc_TypeError, "torch has no tensors with negative strides");
  return PyObject_CallOneArg(convert.get(), tensor);
}

}  // namespace yard::python
