// SPDX-License-Identifier: Apache-2.0
#include "reading.h"

#include <cstring>

#include "gil.h"

namespace yard::python {
namespace {

// Puts the argument into the message of the Python error.
void name_argument(const OpParts& op, const Param& p) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Ref text(value != nullptr ? PyObject_Str(value) : nullptr);
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
  const TensorClass of = class_of(object);
  TensorArg& arg = frame_.add();
  if (!arg.read(object, of, p.written)) return false;
  if (of.framework == Framework::kTorch) {
    if (grads_ < 0) grads_ = grad_mode() ? 1 : 0;
    if (grads_ == 1) {
      const int needs = requires_grad(object);
      if (needs < 0) return false;
      if (needs > 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "it requires a gradient, which Switchyard does not compute; call within "
                        "torch.no_grad(), or detach() the tensor");
        return false;
      }
    }
  }
  if (like_ == nullptr && of.framework != Framework::kNone) like_ = &arg, like_class_ = of;
  arg.t.origin = &arg;  // see CallFrame::object_of()
  to = &arg.t;
  return true;
}

bool Reading::read_list(const Param& p, PyObject* object, Value& to) {
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
  items_.push_back(std::move(items));
  to =
      Value(yard_value_t{YARD_TAG_LIST, static_cast<uint32_t>(list.size()), {.list = list.data()}});
  return true;
}

bool Reading::read_scalar(const Param& p, PyObject* object, Value& to) {
  switch (p.kind) {
    case 'i': {
      const Ref number(PyNumber_Index(object));
      if (!number) return false;
      const int64_t n = PyLong_AsLongLong(number.get());
      if (n == -1 && PyErr_Occurred()) return false;
      to = Value(n);
      return true;
    }
    case 'f': {
      const double f = PyFloat_AsDouble(object);
      if (f == -1 && PyErr_Occurred()) return false;
      to = Value(f);
      return true;
    }
    case 'b': {
      if (!PyBool_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected True or False, got %s", Py_TYPE(object)->tp_name);
        return false;
      }
      to = Value(object == Py_True);
      return true;
    }
    default: {
      Py_ssize_t size = 0;
      const char* const text =
          PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
      if (text == nullptr) {
        if (!PyErr_Occurred())
          PyErr_Format(PyExc_TypeError, "expected a string, got %s", Py_TYPE(object)->tp_name);
        return false;
      }
      to = Value(std::string_view(text, static_cast<size_t>(size)));
      return true;
    }
  }
}

bool Reading::read_one(size_t i) {
  const Param& p = op_.params[i];
  PyObject* const object = values_[i];
  const bool is_tensor = p.kind == 't' || p.kind == 'l';
  if (object == nullptr || (object == Py_None && (is_tensor || p.default_value))) {
    if (is_tensor && !p.optional) {
      PyErr_Format(PyExc_TypeError, "op '%s' needs argument '%s'", op_.name.c_str(),
                   p.text.c_str());
      return false;
    }
    if (!is_tensor && !p.default_value) {
      PyErr_Format(PyExc_TypeError, "op '%s' needs argument '%s'", op_.name.c_str(),
                   p.text.c_str());
      return false;
    }
    set(i, is_tensor ? Value(nullptr) : *p.default_value);
    return true;
  }
  Value v(nullptr);
  const yard_tensor_t* t = nullptr;
  const bool ok = p.kind == 't'   ? read_tensor(p, object, t)
                  : p.kind == 'l' ? read_list(p, object, v)
                                  : read_scalar(p, object, v);
  if (!ok) return name_argument(op_, p), false;
  set(i, t != nullptr ? Value(yard_value_t{YARD_TAG_TENSOR, 0, {.tensor = t}}) : v);
  return true;
}

bool Reading::read(bool allocate) {
  bool complete = true;
  for (size_t i = 0; i < op_.params.size(); ++i) {
    if (op_.params[i].output && (values_[i] == nullptr || values_[i] == Py_None)) {
      complete &= op_.params[i].optional;
      values_[i] = nullptr;
      set(i, Value(nullptr));
    } else if (!read_one(i)) {
      return false;
    }
  }
  return complete || add_outputs(allocate);
}

// Finds the outputs of the call among those of earlier calls, or asks the runtime.
bool Reading::infer(std::vector<InferredOutput>& to) {
  std::string key;
  std::vector<Arg> inputs;
  const auto add = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  const auto add_tensor = [&](const yard_tensor_t& t) {
    add(t.dtype), add(t.ndim), add(t.device);
    key.append(reinterpret_cast<const char*>(t.shape),
               static_cast<size_t>(t.ndim) * sizeof(int64_t));
  };
  for (size_t i = 0; i < op_.params.size(); ++i) {
    if (op_.params[i].output) continue;
    inputs.push_back(args_[i]);
    const yard_value_t v = args_[i].value.c();
    add(v.tag);
    switch (v.tag) {
      case YARD_TAG_NONE: break;
      case YARD_TAG_TENSOR: add_tensor(*v.u.tensor); break;
      case YARD_TAG_LIST:
        add(v.count);
        for (uint32_t j = 0; j < v.count; ++j) add_tensor(*v.u.list[j]);
        break;
      case YARD_TAG_STRING:
        add(v.count);
        key.append(v.u.string, v.count);
        break;
      default: add(v.u.i);
    }
  }
  for (const Inferred& i : op_.inferred) {
    if (i.key != key || i.outputs.empty()) continue;
    for (const InferredOutput& o : i.outputs) to.push_back(o.copy());
    return true;
  }
  const auto found = [&] {
    const Released others;
    return Runtime::shared().infer(op_.name, std::span<const Arg>(inputs));
  }();
  if (!found.ok()) return raise_status(found.status(), op_.name.c_str()), false;
  Inferred made{std::move(key), {}};
  for (const TensorView& v : *found) {
    Ref shape(PyTuple_New(v.rank()));
    if (!shape) return false;
    for (int d = 0; d < v.rank(); ++d)
      PyTuple_SET_ITEM(shape.get(), d, PyLong_FromLongLong(v.shape()[static_cast<size_t>(d)]));
    to.push_back(made.outputs.emplace_back(InferredOutput{v.dtype(), std::move(shape)}).copy());
  }
  op_.inferred[op_.next_inferred++ % op_.inferred.size()] = std::move(made);
  return true;
}

bool Reading::add_outputs(bool allocate) {
  std::vector<InferredOutput> inferred;  // other threads may replace those of the op
  if (!infer(inferred)) return false;
  if (allocate && like_ == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "op '%s' needs argument '%s', since no library of its tensors makes others",
                 op_.name.c_str(), op_.params[op_.outputs[0]].text.c_str());
    return false;
  }
  views_.reserve(op_.outputs.size());
  for (size_t o = 0; o < op_.outputs.size() && o < inferred.size(); ++o) {
    const size_t i = op_.outputs[o];
    if (values_[i] != nullptr || op_.params[i].optional) continue;
    const DType dtype = inferred[o].dtype;
    const Ref& shape = inferred[o].shape;
    if (!allocate) {
      int64_t sizes[YARD_MAX_RANK];
      const auto rank = static_cast<size_t>(PyTuple_GET_SIZE(shape.get()));
      for (size_t d = 0; d < rank; ++d)
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), static_cast<Py_ssize_t>(d)));
      set(i, Value(views_.emplace_back(nullptr, dtype, Sizes(std::span(sizes, rank)))));
      continue;
    }
    made_[i] = Ref(make_tensor(*like_, like_class_, dtype, shape.get()));
    if (!made_[i]) return false;
    values_[i] = made_[i].get();
    if (!read_one(i)) return false;
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
