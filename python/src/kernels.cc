// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "gil.h"

namespace nb = nanobind;

namespace yard::python {
namespace {

// The ids of kernels with autograd=True, by op. Needs the GIL.
std::map<std::string, std::set<std::string>>& autograd_ids() {
  static auto& ids = *new std::map<std::string, std::set<std::string>>;
  return ids;
}

struct KernelParam {
  std::string name;
  std::vector<std::string> words;  // of an enum
  bool written = false;
};

// A kernel's functions, and the texts that its descriptor borrows.
struct PythonKernel {
  Kept function, verify, tensor_info;
  bool torch = false;  // whether it takes tensors of torch, else arrays of numpy
  bool autograd = false;
  std::vector<KernelParam> params;
  std::string op, id, backend, vendor, summary;
  std::vector<std::string> reasons, limit_fields;
  std::vector<const char*> reason_texts;
  std::vector<yard_limit_t> limits;
};

int32_t fail(char* error, size_t size, int32_t code, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return code;
}

// The locals of these frames may be tensors over memory of a C++ program.
void clear_frames(PyObject* exception) {
  const Ref trace(PyException_GetTraceback(exception));
  const Ref module(trace ? PyImport_ImportModule("traceback") : nullptr);
  const Ref done(module ? PyObject_CallMethod(module.get(), "clear_frames", "O", trace.get())
                        : nullptr);
  PyErr_Clear();
}

// Translates the Python error of a kernel, and keeps the exception for the caller. `lent` says that
// the kernel has tensors that must not outlive it.
int32_t translate(yard_call_t* call, bool lent) {
  const Ref exception(take_exception());
  PyObject* const value = exception.get();
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  CallFrame* const frame = CallFrame::current();
  if (PyErr_GivenExceptionMatches(type, PyExc_Exception) == 0) {
    // KeyboardInterrupt and SystemExit belong to the program.
    if (frame != nullptr) {
      Py_XDECREF(std::exchange(frame->interrupt, Py_NewRef(value)));
    } else if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt) != 0) {
      PyErr_SetInterrupt();
    }
    return fail(call->error, call->error_size, YARD_CALLER, "it was interrupted");
  }
  const std::string message = exception_text(value);
  const char* const name = Py_TYPE(value)->tp_name;
  const char* const dot = std::strrchr(name, '.');
  const std::string_view short_name = dot != nullptr ? dot + 1 : name;
  if (is_declined(value))
    return fail(call->error, call->error_size, YARD_DECLINED,
                message.substr(message.find(": ") + 2).c_str());
  if (frame != nullptr) Py_XDECREF(std::exchange(frame->failure, Py_NewRef(value)));
  if (frame == nullptr || lent) clear_frames(value);
  const bool memory =
      PyErr_GivenExceptionMatches(type, PyExc_MemoryError) != 0 || short_name == "OutOfMemoryError";
  return fail(call->error, call->error_size, memory ? YARD_TRANSIENT : YARD_FAULT, message.c_str());
}

// The arguments of one run as Python objects.
class Arguments {
 public:
  explicit Arguments(const PythonKernel& kernel) : kernel_(kernel) {}
  ~Arguments() { release(); }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  bool add(const yard_value_t& v, const KernelParam& p) {
    PyObject* const made = object(v, p);
    if (made != nullptr) objects_[count_++] = made;
    return made != nullptr;
  }
  PyObject* call() {
    return PyObject_Vectorcall(kernel_.function.get(), objects_, count_, nullptr);
  }
  bool has_output(PyObject* object) const {
    for (size_t i = 0; i < count_; ++i)
      if (objects_[i] == object && kernel_.params[i].written) return true;
    return false;
  }
  bool lends() const { return !lent_.empty(); }
  // Returns the argument whose memory nobody keeps alive and somebody still refers to, or "".
  std::string kept() {
    if (lent_.empty()) return "";
    release();
    for (const bool collected : {false, true})
      for (size_t i = 0; i < lent_.size(); ++i) {
        if (Py_REFCNT(lent_[i].first.get()) == 1) continue;
        if (collected) return lent_[i].second;
        PyGC_Collect();  // locals of the kernel may be parts of a cycle
        break;
      }
    return "";
  }

 private:
  void release() {
    while (count_ > 0) Py_DECREF(objects_[--count_]);
  }
  PyObject* object(const yard_value_t& v, const KernelParam& p) {
    switch (v.tag) {
      case YARD_TAG_TENSOR: return tensor(*v.u.tensor, p);
      case YARD_TAG_LIST: {
        Ref list(PyList_New(v.count));
        for (uint32_t i = 0; list && i < v.count; ++i) {
          PyObject* const t = tensor(*v.u.list[i], p);
          if (t == nullptr) return nullptr;
          PyList_SET_ITEM(list.get(), i, t);
        }
        return list.release();
      }
      case YARD_TAG_INT:
        if (v.u.i >= 0 && static_cast<size_t>(v.u.i) < p.words.size())
          return PyUnicode_FromString(p.words[static_cast<size_t>(v.u.i)].c_str());
        return PyLong_FromLongLong(v.u.i);
      case YARD_TAG_FLOAT: return PyFloat_FromDouble(v.u.f);
      case YARD_TAG_BOOL: return PyBool_FromLong(v.u.i != 0);
      case YARD_TAG_STRING: return PyUnicode_DecodeUTF8(v.u.string, v.count, "replace");
      default: Py_RETURN_NONE;
    }
  }
  PyObject* tensor(const yard_tensor_t& t, const KernelParam& p) {
    const CallFrame::Found own = CallFrame::object_of(t);
    if (const CallFrame* const frame = CallFrame::current();
        frame != nullptr && frame->has_gradients && !own.same)
      return PyErr_Format(PyExc_TypeError, "it is a copy, which has no gradient");
    if (own.same && own.framework == (kernel_.torch ? Framework::kTorch : Framework::kNumpy))
      return Py_NewRef(own.object);
    Ref lent(lend_tensor(t, own.object, !p.written));
    if (!lent) return nullptr;
    // DLPack and buffers cannot have these dtypes, so the kernel gets the yard.Tensor.
    PyObject* const to =
        yard_is_blocks(t.dtype) ? Py_NewRef(lent.get()) : to_library(lent.get(), kernel_.torch);
    if (to != nullptr && own.object == nullptr) lent_.emplace_back(std::move(lent), p.name);
    return to;
  }

  const PythonKernel& kernel_;
  PyObject* objects_[YARD_MAX_ARGS];  // owned
  size_t count_ = 0;
  std::vector<std::pair<Ref, std::string>> lent_;
};

int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const auto& kernel = *static_cast<const PythonKernel*>(call->self);
  if (g_ended.load(std::memory_order_acquire))
    return fail(call->error, call->error_size, YARD_DECLINED, "the interpreter has ended");
  if (count != kernel.params.size())
    return fail(call->error, call->error_size, YARD_DECLINED, "the op has other parameters now");
  const Gil gil;
  Arguments arguments(kernel);
  for (uint32_t i = 0; i < count; ++i) {
    if (arguments.add(args[i], kernel.params[i])) continue;
    const std::string why = "argument '" + kernel.params[i].name + "': ";
    return fail(call->error, call->error_size, YARD_DECLINED,
                (why + exception_text(Ref(take_exception()).get())).c_str());
  }
  Ref result(arguments.call());
  int32_t code = YARD_OK;
  if (!result)
    code = translate(call, arguments.lends());
  else if (result.get() != Py_None && !arguments.has_output(result.get()))
    code = fail(call->error, call->error_size, YARD_FAULT,
                "it returned a value; a kernel writes to its outputs and returns None");
  result = Ref();
  if (const std::string kept = arguments.kept(); !kept.empty())
    return fail(call->error, call->error_size, YARD_FAULT,
                ("it keeps a reference to argument '" + kept +
                 "', whose memory is valid only until it returns")
                    .c_str());
  return code;
}

PyObject* info_of(const PythonKernel& kernel, const yard_tensor_t& t) {
  const Ref shape(PyTuple_New(t.ndim)), strides(PyTuple_New(t.ndim));
  if (!shape || !strides) return nullptr;
  int64_t compact = 1;
  for (int i = t.ndim; i-- > 0; compact *= t.shape[i]) {
    PyTuple_SET_ITEM(shape.get(), i, PyLong_FromLongLong(t.shape[i]));
    PyTuple_SET_ITEM(strides.get(), i,
                     PyLong_FromLongLong(t.strides != nullptr ? t.strides[i] : compact));
  }
  const std::string device = to_string(Device{t.device.type, t.device.index});
  return PyObject_CallFunction(kernel.tensor_info.get(), "sOOs", to_string(from_dlpack(t.dtype)),
                               shape.get(), strides.get(), device.c_str());
}

// Asks the verifier, which returns None or True, or the reason and its figures.
int32_t ask(const PythonKernel& kernel, const yard_query_t& query, yard_verdict_t& verdict) {
  Ref args(PyTuple_New(query.count));
  for (uint32_t i = 0; args && i < query.count; ++i) {
    const yard_value_t& v = query.args[i];
    const KernelParam& p = kernel.params[i];
    PyObject* o = nullptr;
    if (v.tag == YARD_TAG_TENSOR) {
      o = info_of(kernel, *v.u.tensor);
    } else if (v.tag == YARD_TAG_LIST) {
      o = PyList_New(v.count);
      for (uint32_t j = 0; o != nullptr && j < v.count; ++j) {
        PyObject* const item = info_of(kernel, *v.u.list[j]);
        if (item == nullptr) return Py_DECREF(o), -1;
        PyList_SET_ITEM(o, j, item);
      }
    } else if (v.tag == YARD_TAG_INT && v.u.i >= 0 && static_cast<size_t>(v.u.i) < p.words.size()) {
      o = PyUnicode_FromString(p.words[static_cast<size_t>(v.u.i)].c_str());
    } else if (v.tag == YARD_TAG_INT) {
      o = PyLong_FromLongLong(v.u.i);
    } else if (v.tag == YARD_TAG_FLOAT) {
      o = PyFloat_FromDouble(v.u.f);
    } else if (v.tag == YARD_TAG_BOOL) {
      o = PyBool_FromLong(v.u.i != 0);
    } else if (v.tag == YARD_TAG_STRING) {
      o = PyUnicode_DecodeUTF8(v.u.string, v.count, "replace");
    } else {
      o = Py_NewRef(Py_None);
    }
    if (o == nullptr) return -1;
    PyTuple_SET_ITEM(args.get(), i, o);
  }
  if (!args) return -1;
  const Ref answer(PyObject_CallObject(kernel.verify.get(), args.get()));
  if (!answer) return -1;
  verdict.reason = YARD_REASON_NONE;
  if (answer.get() == Py_None || answer.get() == Py_True) return 0;
  if (answer.get() == Py_False) return verdict.reason = YARD_REASON_REFUSED, 0;
  PyObject* text = answer.get();
  if (PyTuple_Check(text) && PyTuple_GET_SIZE(text) > 0) {
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(answer.get()) && i <= 3; ++i)
      verdict.figures[i - 1] = PyLong_AsLongLong(PyTuple_GET_ITEM(answer.get(), i));
    if (PyErr_Occurred()) return -1;
    text = PyTuple_GET_ITEM(text, 0);
  }
  const char* const word = PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  for (size_t i = 0; word != nullptr && i < kernel.reasons.size(); ++i)
    if (kernel.reasons[i] == word)
      return verdict.reason = YARD_REASON_OWN + static_cast<int32_t>(i), 0;
  PyErr_Format(PyExc_ValueError, "verify of '%s' returned %R, which is not among its reasons",
               kernel.id.c_str(), answer.get());
  return -1;
}

int32_t verify(const yard_query_t* query, yard_verdict_t* verdict) {
  if (g_ended.load(std::memory_order_acquire))
    return verdict->reason = YARD_REASON_REFUSED, YARD_OK;
  const Gil gil;
  const auto& kernel = *static_cast<const PythonKernel*>(query->self);
  if (query->count != kernel.params.size()) return verdict->reason = YARD_REASON_REFUSED, YARD_OK;
  if (ask(kernel, *query, *verdict) == 0) return YARD_OK;
  if (CallFrame* const frame = CallFrame::current();
      frame != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    Py_XDECREF(std::exchange(frame->interrupt, take_exception()));
    return YARD_FAULT;
  }
  // The program sees the error through sys.unraisablehook; dispatch sees a broken verifier.
  PyErr_WriteUnraisable(kernel.verify.get());
  return YARD_FAULT;
}

void check(const Status& status, const std::string& subject) {
  if (status.ok()) return;
  raise_status(status, subject.c_str());
  nb::raise_python_error();
}

std::string text_of(const nb::dict& fields, const char* name) {
  return fields.contains(name) && !fields[name].is_none() ? nb::cast<std::string>(fields[name])
                                                          : std::string();
}

std::shared_ptr<PythonKernel> read_kernel(const nb::dict& fields) {
  auto k = std::make_shared<PythonKernel>();
  k->op = text_of(fields, "op"), k->id = text_of(fields, "id"),
  k->vendor = text_of(fields, "vendor");
  k->backend = text_of(fields, "backend"), k->summary = text_of(fields, "summary");
  k->function.set(nb::object(fields["function"]).ptr());
  k->tensor_info.set(nb::object(fields["tensor_info"]).ptr());
  if (!fields["verify"].is_none()) k->verify.set(nb::object(fields["verify"]).ptr());
  k->torch = text_of(fields, "tensors") == "torch";
  k->autograd = nb::cast<bool>(fields["autograd"]);
  k->reasons = nb::cast<std::vector<std::string>>(fields["reasons"]);
  for (const std::string& r : k->reasons) k->reason_texts.push_back(r.c_str());
  for (const nb::handle p : fields["params"])
    k->params.push_back({nb::cast<std::string>(p[0]), nb::cast<std::vector<std::string>>(p[1]),
                         nb::cast<bool>(p[2])});
  const auto dtypes = nb::cast<nb::dict>(fields["dtypes"]);
  k->limit_fields.reserve(dtypes.size());
  for (const auto& [argument, words] : dtypes) {
    uint64_t mask = 0;
    for (const nb::handle w : words) {
      const auto word = nb::cast<std::string>(w);
      const auto dtype = parse_dtype(word);
      if (!dtype) throw nb::value_error(("dtypes: '" + word + "' is not a dtype").c_str());
      mask |= YARD_DTYPE_BIT(static_cast<int>(*dtype));
    }
    const char* field = nullptr;
    if (!argument.is_none())
      field = k->limit_fields.emplace_back(nb::cast<std::string>(argument)).c_str();
    k->limits.push_back(plugin::limit(YARD_LIMIT_DTYPE, field, static_cast<int64_t>(mask)));
  }
  return k;
}

void add_to(Changes& changes, const std::shared_ptr<PythonKernel>& k, const nb::dict& fields) {
  const auto word = text_of(fields, "kind");
  yard_kernel_t d{};
  d.size = sizeof d;
  d.op = k->op.c_str(), d.id = k->id.c_str(), d.summary = k->summary.c_str(), d.self = k.get();
  d.kind = word == "vendor"      ? YARD_KIND_VENDOR
           : word == "reference" ? YARD_KIND_REFERENCE
                                 : YARD_KIND_DEFAULT;
  d.priority = nb::cast<int32_t>(fields["priority"]);
  d.limits = k->limits.data(), d.limit_count = static_cast<uint32_t>(k->limits.size());
  d.reasons = k->reason_texts.data(),
  d.reason_count = static_cast<uint32_t>(k->reason_texts.size());
  d.run = &run;
  if (k->verify) d.verify = &verify;
  if (text_of(fields, "device") != "cpu") d.flags |= YARD_KERNEL_ASYNC;
  if (!k->backend.empty()) {
    d.backend = k->backend.c_str();
    plugin::Backend b(k->backend.c_str());
    if (!k->vendor.empty()) b.vendor(k->vendor.c_str());
    b.summary("Kernels in Python");
    if (!nb::cast<bool>(fields["own_backend"])) changes.add_backend(b);
  }
  changes.add_kernel(d, k);
}

Status apply(Changes changes) {
  const Released others;
  return Runtime::shared().apply(std::move(changes)).status();
}

void register_kernel(const nb::dict& fields) {
  const auto k = read_kernel(fields);
  Changes changes;
  add_to(changes, k, fields);
  check(apply(std::move(changes)), k->op);
  if (k->autograd) autograd_ids()[k->op].insert(k->id);
}

void register_op(const std::string& schema, const std::string& summary,
                 const nb::object& reference) {
  Changes changes;
  plugin::OpDef op(schema.c_str());
  op.summary(summary.c_str());
  changes.add_op(op);
  if (!reference.is_none()) {
    const auto fields = nb::cast<nb::dict>(reference);
    add_to(changes, read_kernel(fields), fields);
  }
  check(apply(std::move(changes)), schema);
}

// Removes a kernel, or an op without a kernel's id, and waits until no call uses it.
void unregister(const std::string& op, const std::string& id) {
  Changes changes;
  if (id.empty()) {
    changes.remove_op(op);
    autograd_ids().erase(op);
  } else {
    changes.remove_kernel(op, id);
    if (const auto of = autograd_ids().find(op); of != autograd_ids().end()) of->second.erase(id);
  }
  Result<Ticket> ticket = [&] {
    const Released others;
    return Runtime::shared().apply(std::move(changes));
  }();
  check(ticket.status(), op);
  for (;;) {
    Status waited;
    {
      const Released others;
      waited = ticket->wait(std::chrono::milliseconds(100));
    }
    // Inside a kernel it cannot wait, and the functions are released later.
    if (ticket->done() || waited.code() == Code::kWouldDeadlock) return;
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

}  // namespace

bool has_autograd_kernel(const std::string& op) {
  const auto of = autograd_ids().find(op);
  return of != autograd_ids().end() && !of->second.empty();
}
std::vector<std::string> autograd_kernels(const std::string& op) {
  const auto of = autograd_ids().find(op);
  if (of == autograd_ids().end()) return {};
  return {of->second.begin(), of->second.end()};
}

PyObject* take_exception() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

bool is_declined(PyObject* exception) {
  const Ref errors(PyImport_ImportModule("yard._errors"));
  const Ref declined(errors ? PyObject_GetAttrString(errors.get(), "Declined") : nullptr);
  if (!declined) PyErr_Clear();
  return declined && PyErr_GivenExceptionMatches(exception, declined.get()) != 0;
}

std::string exception_text(PyObject* exception) {
  const Ref text(PyObject_Str(exception));
  const char* const what = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string to = std::string(Py_TYPE(exception)->tp_name) + ": " + (what != nullptr ? what : "");
  if (what == nullptr) PyErr_Clear();
  return to;
}

void add_kernel_functions(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  m.def("register_kernel", &register_kernel);
  m.def("register_op", &register_op, nb::arg(), nb::arg(), nb::arg().none());
  m.def("unregister", &unregister);
  m.def("end", [] { g_ended.store(true); });
}

}  // namespace yard::python
