// SPDX-License-Identifier: Apache-2.0
// The module yard._yard, which the package wraps in Python: reports, and what other files add.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <yard/verify.h>
#include <yard/version.h>
#include <yard/yard.h>

#include "bound.h"
#include "calls.h"
#include "functions.h"
#include "gil.h"
#include "kernels.h"
#include "policy.h"

namespace nb = nanobind;

namespace yard::python {

namespace {

using Texts = std::vector<std::string>;

// Throws the Python exception of a failed Status.
void check(const Status& status, const char* subject = "") {
  if (status.ok()) return;
  raise_status(status, subject);
  nb::raise_python_error();
}

nb::dict kernel_dict(const KernelInfo& k) {
  nb::dict d;
  d["op"] = k.op, d["id"] = k.id, d["kind"] = to_string(k.kind), d["vendor"] = k.vendor;
  d["backend"] = k.backend, d["priority"] = k.priority, d["available"] = k.available;
  d["reason"] = k.reason, d["detail"] = k.detail, d["summary"] = k.summary;
  d["calls"] = k.calls, d["failures"] = k.failures;
  return d;
}

// Runs without the GIL, because what the runtime calls may be Python code.
template <class F>
auto released(const F& f) {
  const Released others;
  return f();
}

nb::dict schemas() {
  const Listing all = released([] { return Runtime::shared().list(); });
  nb::dict to;
  for (const OpInfo& op : all.ops) to[op.name.c_str()] = nb::make_tuple(op.schema, op.summary);
  return to;
}

nb::list kernels(const std::string& op) {
  const Listing all = released([] { return Runtime::shared().list(); });
  nb::list to;
  for (const OpInfo& o : all.ops)
    if (op.empty() || o.name == op)
      for (const KernelInfo& k : o.kernels) to.append(kernel_dict(k));
  return to;
}

nb::tuple explain_text(const std::string& call) {
  CallFrame frame;  // keeps a KeyboardInterrupt of a verifier
  Result<Explanation> e = Status::out_of_memory();
  const bool done = in_active_scope([&] { e = yard::explain(call); });
  if (!done || frame.raise_interrupt()) nb::raise_python_error();
  check(e.status(), call.c_str());
  return nb::make_tuple(e->to_json(), e->to_text());
}

nb::list load_rules(const std::string& path) {
  std::vector<ConfigProblem> problems;
  check(released([&] { return Runtime::shared().rules().load(path, &problems); }), path.c_str());
  nb::list to;
  for (const ConfigProblem& p : problems) to.append(to_string(p));
  return to;
}

nb::list verify_kernels(const std::string& op, const std::string& kernel, const Texts& calls,
                        size_t cases) {
  VerifyOptions o;
  o.op = op, o.kernel = kernel, o.calls = calls, o.cases = cases;
  CallFrame frame;  // keeps a KeyboardInterrupt of a kernel
  o.progress = [&](const VerifyOptions::Progress&) {
    const Gil gil;
    if (frame.interrupt == nullptr && PyErr_CheckSignals() != 0) frame.interrupt = take_exception();
    return frame.interrupt == nullptr;
  };
  const auto report = released([&] { return verify(Runtime::shared(), o); });
  if (frame.raise_interrupt()) nb::raise_python_error();
  check(report.status(), "verify");
  nb::list to;
  for (const KernelReport& k : report->kernels) {
    nb::dict d;
    d["op"] = k.op, d["id"] = k.id, d["passed"] = k.passed, d["failed"] = k.failed;
    d["skipped"] = k.skipped, d["declined"] = k.declined, d["verified"] = k.verified();
    d["worst_error"] = k.worst.error, d["worst_call"] = k.worst.call, d["worst"] = k.worst.what;
    to.append(d);
  }
  return to;
}

}  // namespace

NB_MODULE(_yard, m) {
  nb::set_leak_warnings(false);  // programs end with ops and kernels registered
  if (!add_own_type(m.ptr()) || !add_op_type(m.ptr()) || !add_handle_type(m.ptr()) ||
      !add_policy_type(m.ptr()) || !add_functions(m.ptr()))
    nb::raise_python_error();
  m.attr("version") = YARD_VERSION;
  m.def("schemas", &schemas);
  m.def("kernels", &kernels);
  m.def("explain", &explain_text);
  m.def("load_rules", &load_rules);
  m.def("verify", &verify_kernels);
  m.def("stats", [] { return to_json(released([] { return Runtime::shared().stats(); })); });
  m.def("limit_threads", &Runtime::limit_threads);
  m.def("load_plugin", [](const std::string& path) {
    check(released([&] { return Runtime::shared().plugins().load(path); }), path.c_str());
  });
  add_kernel_functions(m.ptr());
}

}  // namespace yard::python
