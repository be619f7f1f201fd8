// SPDX-License-Identifier: Apache-2.0
#include "functions.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include "calls.h"
#include "gil.h"
#include "policy.h"

namespace nb = nanobind;

namespace yard::python {
namespace {

constexpr const char* kSignature = "object(*args, **kwargs)";

// The argument of all these functions, and what a call leaves for its caller.
struct PythonCall {
  PyObject *args, *kwargs;  // borrowed
  mutable Ref failure;      // the last exception
  mutable bool interrupted = false;
};
using Signature = PyObject*(const PythonCall&);

// The program's C++ exception for a Python exception, which the call keeps.
struct Raised : std::runtime_error {
  using runtime_error::runtime_error;
};

// Calls a Python function. Needs no GIL.
PyObject* run(PyObject* function, const PythonCall& call) {
  if (call.interrupted) throw Raised("the call was interrupted");
  if (g_ended.load()) throw Raised("the interpreter has ended");
  const Gil gil;
  if (PyObject* const result = PyObject_Call(function, call.args, call.kwargs)) return result;
  call.failure = Ref(take_exception());
  call.interrupted = PyErr_GivenExceptionMatches(call.failure.get(), PyExc_Exception) == 0;
  const std::string text = exception_text(call.failure.get());
  if (is_declined(call.failure.get()))
    throw Error(Status(Code::kUnsupported, ErrorClass::kDeclined, text));
  throw Raised(text);
}

// Texts of reasons live as long as the program.
const char* kept_text(const std::string& text) {
  static auto* const texts = new std::set<std::string>;  // under the GIL
  constexpr size_t kMost = 1000;
  if (texts->size() >= kMost && !texts->contains(text)) return nullptr;
  return texts->insert(text).first->c_str();
}

struct Method {
  std::shared_ptr<Kept> function;
  PyObject* operator()(const PythonCall& call) const { return run(function->get(), call); }
};

// A verifier returns True or None to accept, and otherwise a reason, False, or False and a reason.
struct Verifier {
  std::shared_ptr<Kept> function;
  Verdict operator()(const PythonCall& call) const {
    if (g_ended.load()) return Reject(YARD_REASON_REFUSED);
    const Gil gil;
    const Ref answer(PyObject_Call(function->get(), call.args, call.kwargs));
    if (!answer) {
      Ref raised(take_exception());
      const std::string text = exception_text(raised.get());
      call.interrupted = PyErr_GivenExceptionMatches(raised.get(), PyExc_Exception) == 0;
      if (call.interrupted) call.failure = std::move(raised);
      throw Raised(text);
    }
    const bool pair = PyTuple_Check(answer.get()) && PyTuple_GET_SIZE(answer.get()) == 2;
    PyObject* const said = pair ? PyTuple_GET_ITEM(answer.get(), 0) : answer.get();
    PyObject* const why = pair ? PyTuple_GET_ITEM(answer.get(), 1) : answer.get();
    if (said == Py_None || said == Py_True) return Accept();
    if (const char* const text = PyUnicode_Check(why) ? PyUnicode_AsUTF8(why) : nullptr)
      if (const char* const kept = kept_text(text)) return Reject(kept);
    PyErr_Clear();
    if (said == Py_False || PyUnicode_Check(why)) return Reject(YARD_REASON_REFUSED);
    throw Raised("a verifier returned neither a bool nor a reason");
  }
};

struct Function {
  PyObject ob_base;
  detail::FunctionSite* site;
  PyObject *original, *names, *keywords;
  Py_ssize_t required;
};
Function* function(PyObject* o) { return reinterpret_cast<Function*>(o); }

PyObject* run_original(void* context, const PythonCall& call) {
  return run(static_cast<Function*>(context)->original, call);
}

// Whether the arguments fit the parameters: `names`, of which the first are required, and the names
// in `keywords`, with True for required ones. Functions with *args or **kwargs have no `names`.
bool fits(const Function& f, PyObject* args, PyObject* kwargs) {
  if (f.names == Py_None) return true;
  const Py_ssize_t given = PyTuple_GET_SIZE(args), most = PyTuple_GET_SIZE(f.names);
  if (given > most) return false;
  Py_ssize_t used = 0;
  for (Py_ssize_t i = 0; i < most; ++i) {
    const bool named =
        kwargs != nullptr && PyDict_Contains(kwargs, PyTuple_GET_ITEM(f.names, i)) == 1;
    if (named ? i < given : i >= given && i < f.required) return false;
    used += named;
  }
  PyObject *name, *required;
  for (Py_ssize_t at = 0; PyDict_Next(f.keywords, &at, &name, &required);) {
    const bool named = kwargs != nullptr && PyDict_Contains(kwargs, name) == 1;
    if (!named && required == Py_True) return false;
    used += named;
  }
  return used == (kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0);
}

// Function(group, name, original, repeatable, names or None, required, keywords)
int function_init(PyObject* self, PyObject* args, PyObject*) {
  const char *group, *name;
  PyObject *original, *names, *keywords;
  int repeatable;
  Py_ssize_t required;
  if (!PyArg_ParseTuple(args, "ssOpOnO!", &group, &name, &original, &repeatable, &names, &required,
                        &PyDict_Type, &keywords))
    return -1;
  if (names != Py_None && !PyTuple_Check(names)) {
    PyErr_SetString(PyExc_TypeError, "names: expected a tuple or None");
    return -1;
  }
  Function* const f = function(self);
  if (f->site != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "a function does not change");
    return -1;
  }
  f->site = detail::declare_function(group, name, kSignature, Selection::kEnabled, repeatable != 0,
                                     nullptr);
  f->original = Py_NewRef(original), f->names = Py_NewRef(names);
  f->keywords = Py_NewRef(keywords), f->required = required;
  return 0;
}

int function_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(function(self)->original);
  return 0;
}
int function_clear(PyObject* self) {
  Py_CLEAR(function(self)->original);
  return 0;
}
void function_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (function(self)->site != nullptr) detail::undeclare_function(function(self)->site);
  function_clear(self);
  Py_XDECREF(function(self)->names);
  Py_XDECREF(function(self)->keywords);
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* raise(const Ref& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return nullptr;
}

PyObject* function_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Function* const f = function(self);
  if (f->original == nullptr) return PyErr_Format(PyExc_RuntimeError, "the function was not made");
  const ActiveScope scope;
  if (scope.failed()) return nullptr;
  // A call that does not fit is the caller's mistake, and no backend has failed.
  if ((scope.get() == nullptr && detail::is_quiet(*f->site)) || !fits(*f, args, kwargs))
    return PyObject_Call(f->original, args, kwargs);
  PythonCall call{args, kwargs, {}};
  PyObject* result = nullptr;
  std::string problem;
  try {
    const Released others;
    std::optional<ScopedPolicy> inside;
    if (scope.get() != nullptr) inside.emplace(*scope.get());
    const detail::FunctionDefault<PyObject*, const PythonCall&> original{&run_original, f};
    result = detail::call_function<PyObject*, const PythonCall&>(*f->site, original, call);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (result != nullptr && !call.interrupted) return result;
  Py_XDECREF(result);
  if (call.failure) return raise(call.failure);
  return PyErr_Format(PyExc_RuntimeError, "%s", problem.c_str());
}

// Returns (selected, why, [(backend, priority, verdict, reason, detail)], text).
PyObject* function_explain(PyObject* self, PyObject* args, PyObject* kwargs) {
  Function* const f = function(self);
  if (f->site == nullptr) return PyErr_Format(PyExc_RuntimeError, "the function was not made");
  const PythonCall call{args, kwargs, {}};
  FunctionExplanation found;
  std::string problem;
  try {
    const bool done = in_active_scope([&] {
      found = detail::explain_function(
          *f->site, detail::erase<const PythonCall&>(std::tuple<const PythonCall&>(call)));
    });
    if (!done) return nullptr;
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (call.interrupted) return raise(call.failure);
  if (!problem.empty()) return PyErr_Format(PyExc_RuntimeError, "%s", problem.c_str());
  const Ref rows(PyList_New(0));
  for (const FunctionCandidate& c : found.candidates) {
    const Ref row(Py_BuildValue("{sssisssssN}", "backend", c.backend.c_str(), "priority",
                                c.priority, "verdict", c.verdict.c_str(), "reason",
                                c.reason.c_str(), "detail", unicode(c.detail)));
    if (!rows || !row || PyList_Append(rows.get(), row.get()) != 0) return nullptr;
  }
  return Py_BuildValue("{sssssssO}N", "function", found.function.c_str(), "selected",
                       found.selected.c_str(), "why", found.why.c_str(), "candidates", rows.get(),
                       unicode(found.to_text()));
}

PyMethodDef function_methods[] = {
    {"_explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(&function_explain)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {}};
PyType_Slot function_slots[] = {{Py_tp_init, reinterpret_cast<void*>(&function_init)},
                                {Py_tp_new, reinterpret_cast<void*>(&PyType_GenericNew)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(&function_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(&function_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(&function_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(&function_call)},
                                {Py_tp_methods, function_methods},
                                {}};
PyType_Spec function_spec = {"yard._yard.Function", sizeof(Function), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                             function_slots};

template <class V>
void implement(Changes& changes, const char* group, const char* name, const char* backend,
               int priority, Method method, V verifier) {
  using Entry = detail::FunctionEntry<Signature, Method, V, detail::ProgramTexts>;
  std::shared_ptr<Entry> entry(new Entry{std::move(method), std::move(verifier), {}});
  yard_function_t d{};
  d.size = sizeof d, d.priority = priority, d.name = name, d.group = group, d.backend = backend;
  entry->describe(d);
  d.signature = kSignature;
  changes.add_function(d, std::move(entry));
}

// Texts of a backend that is not available.
struct Unavailable {
  std::string text;
  const char* texts[1];
};
int32_t refuse(void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
  return why->reason = YARD_REASON_OWN, YARD_DECLINED;
}

void apply(Changes changes, const std::string& subject) {
  Status status;
  {
    const Released others;
    status = Runtime::shared().apply(std::move(changes)).status();
  }
  if (status.ok()) return;
  raise_status(status, subject.c_str());
  nb::raise_python_error();
}

// `functions` are tuples (group, name, method, verifier or None, priority).
void add_backend(const std::string& name, const std::string& vendor, const std::string& summary,
                 const std::string& env, const std::string& device, const std::string& unavailable,
                 const nb::list& functions) {
  Changes changes;
  plugin::Backend b(name.c_str());
  const auto where = parse_device(device);
  if (!where) throw nb::value_error(("device: '" + device + "' is not a device").c_str());
  b.summary(summary.c_str()).device(where->type);
  if (!vendor.empty()) b.vendor(vendor.c_str());
  if (!env.empty()) b.env(env.c_str());
  const auto why = std::make_shared<Unavailable>(Unavailable{unavailable, {}});
  why->texts[0] = why->text.c_str();
  if (!unavailable.empty()) b.probe(&refuse).reasons(why->texts);
  changes.add_backend(b, why);
  for (const nb::handle f : functions) {
    const auto group = nb::cast<std::string>(f[0]), function_name = nb::cast<std::string>(f[1]);
    const Method method{std::make_shared<Kept>(nb::object(f[2]).ptr())};
    const int priority = nb::cast<int>(f[4]);
    if (nb::object(f[3]).is_none())
      implement(changes, group.c_str(), function_name.c_str(), name.c_str(), priority, method,
                detail::NoVerifier());
    else
      implement(changes, group.c_str(), function_name.c_str(), name.c_str(), priority, method,
                Verifier{std::make_shared<Kept>(nb::object(f[3]).ptr())});
  }
  apply(std::move(changes), name);
}

void remove_backend(const std::string& name) {
  Changes changes;
  changes.remove_backend(name);
  apply(std::move(changes), name);
}

nb::list list_functions() {
  const auto all = [] {
    const Released others;
    return Runtime::shared().functions().list();
  }();
  nb::list to;
  for (const FunctionInfo& f : all) {
    nb::dict d;
    nb::list providers;
    for (const FunctionProvider& p : f.providers) {
      nb::dict row;
      row["backend"] = p.backend, row["priority"] = p.priority, row["on"] = p.on;
      row["reason"] = p.reason, row["detail"] = p.detail, row["breaker"] = p.breaker;
      row["calls"] = p.calls, row["failures"] = p.failures;
      providers.append(row);
    }
    d["function"] = f.group + "/" + f.name, d["signature"] = f.signature;
    d["original_calls"] = f.original_calls, d["backends"] = providers;
    to.append(d);
  }
  return to;
}

}  // namespace

bool add_functions(PyObject* module) {
  const Ref type(PyType_FromSpec(&function_spec));
  if (!type || PyModule_AddObjectRef(module, "Function", type.get()) != 0) return false;
  nb::module_ m = nb::borrow<nb::module_>(module);
  m.def("add_backend", &add_backend);
  m.def("remove_backend", &remove_backend);
  m.def("functions", &list_functions);
  return true;
}

}  // namespace yard::python
