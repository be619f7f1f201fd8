// SPDX-License-Identifier: Apache-2.0
#include "reading.h"

#include <cstring>

#include "gil.h"
#include "kernels.h"

namespace yard::python {
namespace {

// Puts the argument into the message of the Python error.
void name_argument(const OpParts& op, const Param& p) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Ref text(value != nullptr ? PyObject_Str(value) : nullptr);
  if (text) {  // torch adds the frames of its stack
    const Ref parts(PyObject_CallMethod(text.get(), "partition", "s", "\nException raised from"));
    if (parts) text = Ref::borrow(PyTuple_GET_ITEM(parts.get(), 0));
  }
  const bool simple = type == PyExc_TypeError || type == PyExc_ValueError ||
                      type == PyExc_BufferError || type == PyExc_RuntimeError ||
                      type == PyExc_OverflowError;
  if (simple && text) {
    PyErr_Format(type, "argument '%s' of op '%s': %U", p.text.c_str(), op.name.c_str(), text.get());
    PyObject *new_type, *new_value, *new_trace;
    PyErr_Fetch(&new_type, &new_value, &new_trace);
    PyErr_NormalizeException(&new_type, &new_value, &new_trace);
    if (trace != nullptr) {  // it comes from code of the argument's class
      PyException_SetTraceback(value, trace);
      PyException_SetCause(new_value, Py_NewRef(value));
    }
    PyErr_Restore(new_type, new_value, new_trace);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  } else {
    PyErr_Restore(type, value, trace);
  }
}

}  // namespace

bool Reading::place(PyObject* const* args, size_t count, PyObject* names) {
  if (count > op_.inputs.size()) {
    std::string takes;
    for (const uint8_t i : op_.inputs) takes += (takes.empty() ? "" : ", ") + op_.params[i].text;
    PyErr_Format(PyExc_TypeError, "op '%s' takes at most %zu positional arguments (%s), got %zu",
                 op_.name.c_str(), op_.inputs.size(), takes.c_str(), count);
    return false;
  }
  for (size_t i = 0; i < count; ++i) values_[op_.inputs[i]] = args[i];
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i)
    if (!place_named(PyTuple_GET_ITEM(names, i), args[count + static_cast<size_t>(i)]))
      return false;
  return true;
}

void Reading::place_rest(PyObject* const* values) noexcept {
  for (size_t i = 0; i < op_.params.size(); ++i)
    if (values_[i] == nullptr) values_[i] = values[i];
}

bool Reading::place_named(PyObject* name, PyObject* value) {
  const auto put = [&](size_t i) {
    if (values_[i] != nullptr) {
      PyErr_Format(PyExc_TypeError, "op '%s' got argument '%U' twice", op_.name.c_str(), name);
      return false;
    }
    values_[i] = value;
    return true;
  };
  if (op_.outputs.size() > 1 && PyTuple_Check(value) &&
      PyUnicode_CompareWithASCIIString(name, "out") == 0)
    return place_outputs(value);
  for (size_t i = 0; i < op_.params.size(); ++i)
    if (op_.params[i].name.get() == name) return put(i);
  for (size_t i = 0; i < op_.params.size(); ++i)
    if (PyUnicode_Compare(op_.params[i].name.get(), name) == 0) return put(i);
  if (PyUnicode_CompareWithASCIIString(name, "out") == 0) return place_outputs(value);
  std::string takes;
  for (const Param& p : op_.params) takes += (takes.empty() ? "" : ", ") + p.text;
  PyErr_Format(PyExc_TypeError, "op '%s' has no parameter '%U'; it has %s", op_.name.c_str(), name,
               takes.c_str());
  return false;
}

// `out=` gives all outputs, as a tuple if there are several.
bool Reading::place_outputs(PyObject* value) {
  const auto count = static_cast<Py_ssize_t>(op_.outputs.size());
  const auto put = [&](Py_ssize_t i, PyObject* tensor) {
    PyObject*& to = values_[op_.outputs[static_cast<size_t>(i)]];
    if (to == nullptr) return to = tensor, true;
    PyErr_Format(PyExc_TypeError, "op '%s' got an output twice", op_.name.c_str());
    return false;
  };
  if (count == 1) return put(0, value);
  if (count == 0 || !PyTuple_Check(value) || PyTuple_GET_SIZE(value) != count) {
    PyErr_Format(PyExc_TypeError, "argument 'out' of op '%s': expected a tuple of %zd tensors",
                 op_.name.c_str(), count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!put(i, PyTuple_GET_ITEM(value, i))) return false;
  return true;
}

bool Reading::read_tensor(const Param& p, PyObject* object, const yard_tensor_t*& to) {
  if (frame_.count() == CallFrame::kMost) {
    PyErr_Format(PyExc_ValueError, "a call takes at most %zu tensors", CallFrame::kMost);
    return false;
  }
  const TensorClass of = class_of(object);  // a copy, because reading may run code
  TensorArg& arg = frame_.add();
  if (!arg.read(object, of, p.written)) return false;
  if (of.framework == Framework::kTorch && grads_ != 0 && !check_gradient(p, object)) return false;
  if (like_ == nullptr && of.framework != Framework::kNone) like_ = &arg, like_class_ = of;
  arg.t.origin = &arg;  // see CallFrame::object_of()
  to = &arg.t;
  return true;
}

bool Reading::check_gradient(const Param& p, PyObject* object) {
  // Where the mode was on the last time, it is asked only for a tensor that requires a gradient.
  static bool was_on = true;
  const auto ask = [&] { return grads_ = was_on = grad_mode(); };
  if (grads_ < 0 && !was_on && !ask()) return true;
  const int needs = requires_grad(object);
  if (needs <= 0) return needs == 0;
  if (grads_ < 0 && !ask()) return true;
  if (p.written || !has_autograd_kernel(op_.name)) {
    PyErr_SetString(PyExc_RuntimeError,
                    p.written ? "it requires a gradient, and the call writes to it; call within "
                                "torch.no_grad(), or detach() the tensor"
                              : "it requires a gradient, which Switchyard does not compute; call "
                                "within torch.no_grad(), detach() the tensor, or write a kernel "
                                "with autograd=True");
    return false;
  }
  frame_.has_gradients = true;
  return true;
}

bool Reading::read_list(const Param& p, PyObject* object, yard_value_t& to) {
  if (!PyList_Check(object) && !PyTuple_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected a list of tensors, got %s", Py_TYPE(object)->tp_name);
    return false;
  }
  // A copy, because reading a tensor may run code that changes the list.
  Ref items(PySequence_Tuple(object));
  if (!items) return false;
  auto& list = lists_.emplace_back();
  list.resize(static_cast<size_t>(PyTuple_GET_SIZE(items.get())));
  for (size_t i = 0; i < list.size(); ++i)
    if (!read_tensor(p, PyTuple_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)), list[i]))
      return false;
  kept_[kept_count_++] = items.release();
  to = {YARD_TAG_LIST, static_cast<uint32_t>(list.size()), {.list = list.data()}};
  return true;
}

bool Reading::read_scalar(const Param& p, PyObject* object, yard_value_t& to) {
  switch (p.kind) {
    case 'i': {
      const Ref number(PyNumber_Index(object));
      if (!number) return false;
      to = {YARD_TAG_INT, 0, {.i = PyLong_AsLongLong(number.get())}};
      return to.u.i != -1 || !PyErr_Occurred();
    }
    case 'f':
      to = {YARD_TAG_FLOAT, 0, {.f = PyFloat_AsDouble(object)}};
      return to.u.f != -1 || !PyErr_Occurred();
    case 'b':
      to = {YARD_TAG_BOOL, 0, {.i = object == Py_True}};
      if (PyBool_Check(object)) return true;
      PyErr_Format(PyExc_TypeError, "expected True or False, got %s", Py_TYPE(object)->tp_name);
      return false;
    default: break;
  }
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected a string, got %s", Py_TYPE(object)->tp_name);
    return false;
  }
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) return false;
  const std::string_view word(text, static_cast<size_t>(size));
  if (p.kind == 'e') return read_word(p, word, to);
  to = {YARD_TAG_STRING, static_cast<uint32_t>(size), {.string = text}};
  return true;
}

bool Reading::read_word(const Param& p, std::string_view word, yard_value_t& to) {
  std::string known;
  for (size_t i = 0; i < p.words.size(); ++i) {
    if (p.words[i] == word) {
      to = {YARD_TAG_INT, 0, {.i = static_cast<int64_t>(i)}};
      return true;
    }
    known += (i == 0 ? "" : i + 1 < p.words.size() ? ", " : " or ") + p.words[i];
  }
  raise_status(
      Status(Code::kInvalidArgument, op_.name + ": invalid argument '" + p.text + "': expected " +
                                         known + ", got '" + std::string(word) + "'"),
      op_.name.c_str());
  return false;
}

bool Reading::read_one(size_t i) {
  const Param& p = op_.params[i];
  PyObject* const object = values_[i];
  yard_value_t& to = cells_[i];
  const bool has_default = p.default_value.tag != YARD_TAG_NONE;
  if (object == nullptr || (object == Py_None && (p.is_tensor() || has_default))) {
    to = p.default_value;
    if (has_default || (p.is_tensor() && p.optional)) return true;
    PyErr_Format(PyExc_TypeError, "op '%s' needs argument '%s'", op_.name.c_str(), p.text.c_str());
    return false;
  }
  bool ok;
  if (p.kind == 't') {
    to = {YARD_TAG_TENSOR, 0, {}};
    ok = read_tensor(p, object, to.u.tensor);
  } else {
    ok = p.kind == 'l' ? read_list(p, object, to) : read_scalar(p, object, to);
  }
  if (!ok) name_argument(op_, p);
  return ok;
}

bool Reading::read(bool allocate) {
  bool complete = true;
  for (size_t i = 0; i < op_.params.size(); ++i) {
    if (op_.params[i].output && (values_[i] == nullptr || values_[i] == Py_None)) {
      complete &= op_.params[i].optional;
      values_[i] = nullptr;
      cells_[i] = {};
    } else if (!read_one(i)) {
      return false;
    }
  }
  return complete || add_outputs(allocate);
}

static std::string form_text(const yard_tensor_t& t) {
  std::string to = std::string(to_string(from_dlpack(t.dtype))) + '[';
  for (int i = 0; i < t.ndim; ++i) to += (i > 0 ? "," : "") + std::to_string(t.shape[i]);
  return to + ']';
}

// Finds the outputs of the call among those of earlier calls, or asks the runtime.
std::shared_ptr<const Inferred> Reading::infer() {
  FormKey key;
  for (size_t i = 0; i < op_.params.size(); ++i) {
    if (op_.params[i].output) continue;
    const yard_value_t& v = cells_[i];
    key.add(v.tag);
    switch (v.tag) {
      case YARD_TAG_NONE: break;
      case YARD_TAG_TENSOR: key.add(*v.u.tensor); break;
      case YARD_TAG_LIST:
        key.add(v.count);
        for (uint32_t j = 0; j < v.count; ++j) key.add(*v.u.list[j]);
        break;
      case YARD_TAG_STRING:
        key.add(v.count);
        key.add(v.u.string, v.count);
        break;
      default: key.add(v.u.i);
    }
  }
  for (const auto& known : op_.inferred)
    if (known != nullptr && known->key == key.get()) return known;
  std::vector<Arg> inputs;
  for (size_t i = 0; i < op_.params.size(); ++i)
    if (!op_.params[i].output) inputs.push_back(Arg(Value(cells_[i])));
  const auto found = [&] {
    const Released others;
    return Runtime::shared().infer(op_.name, std::span<const Arg>(inputs));
  }();
  if (!found.ok()) {
    Status why = found.status();
    why.note("schema: " + std::string(PyUnicode_AsUTF8(op_.schema.get())));
    for (size_t i = 0; i < op_.params.size(); ++i)
      if (cells_[i].tag == YARD_TAG_TENSOR)
        why.note(op_.params[i].text + ": " + form_text(*cells_[i].u.tensor));
    return raise_status(why, op_.name.c_str()), nullptr;
  }
  const auto made = std::make_shared<Inferred>(Inferred{std::string(key.get()), {}});
  for (const TensorView& v : *found) {
    Ref shape(PyTuple_New(v.rank()));
    if (!shape) return nullptr;
    for (int d = 0; d < v.rank(); ++d)
      PyTuple_SET_ITEM(shape.get(), d, PyLong_FromLongLong(v.shape()[static_cast<size_t>(d)]));
    made->outputs.push_back({v.dtype(), std::move(shape)});
  }
  op_.inferred[op_.next_inferred++ % op_.inferred.size()] = made;
  return made;
}

bool Reading::add_outputs(bool allocate) {
  const auto inferred = infer();  // kept, since other threads may replace those of the op
  if (inferred == nullptr) return false;
  if (allocate && like_ == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "op '%s' needs argument '%s', since no library of its tensors makes others",
                 op_.name.c_str(), op_.params[op_.outputs[0]].text.c_str());
    return false;
  }
  if (!allocate) views_.reserve(op_.outputs.size());
  for (size_t o = 0; o < op_.outputs.size() && o < inferred->outputs.size(); ++o) {
    const size_t i = op_.outputs[o];
    if (values_[i] != nullptr || op_.params[i].optional) continue;
    const auto& [dtype, shape] = inferred->outputs[o];
    if (!allocate) {
      int64_t sizes[YARD_MAX_RANK];
      const auto rank = static_cast<size_t>(PyTuple_GET_SIZE(shape.get()));
      for (size_t d = 0; d < rank; ++d)
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), static_cast<Py_ssize_t>(d)));
      const TensorView& view =
          views_.emplace_back(nullptr, dtype, Sizes(std::span(sizes, rank)), Sizes(),
                              Device{like_ != nullptr ? like_->t.device.type : 1,
                                     like_ != nullptr ? like_->t.device.index : 0});
      cells_[i] = {YARD_TAG_TENSOR, 0, {.tensor = &view.c()}};
      continue;
    }
    values_[i] = make_tensor(*like_, like_class_, dtype, shape.get());
    if (values_[i] == nullptr) return false;
    kept_[kept_count_++] = values_[i];
    const int grads = std::exchange(grads_, 0);  // a new tensor requires no gradient
    if (!read_one(i)) return false;
    grads_ = grads;
  }
  return true;
}

PyObject* Reading::result() {
  const auto one = [&](size_t i) { return values_[i] != nullptr ? values_[i] : Py_None; };
  if (op_.outputs.empty()) Py_RETURN_NONE;
  if (op_.outputs.size() == 1) return Py_NewRef(one(op_.outputs[0]));
  PyObject* const to = PyTuple_New(static_cast<Py_ssize_t>(op_.outputs.size()));
  for (size_t o = 0; to != nullptr && o < op_.outputs.size(); ++o)
    PyTuple_SET_ITEM(to, static_cast<Py_ssize_t>(o), Py_NewRef(one(op_.outputs[o])));
  return to;
}

}  // namespace yard::python
