// SPDX-License-Identifier: Apache-2.0
// Runtime: calls by name, explanations of calls, and lists of ops.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/runtime.h>

#include "base/results.h"
#include "dispatch/call.h"
#include "dispatch/core.h"
#include "op/bind.h"
#include "op/call.h"
#include "select/reasons.h"
#include "select/select.h"
#include "verify/parsed_call.h"

namespace yard {
namespace {

Result<Resolution> resolution(Result<Explanation> e) {
  if (!e.ok()) return std::move(e).status();
  if (e->selected.empty()) {
    Status s(
        Code::kNoKernel,
        fmt::format("no kernel of op '{}' is allowed, able and healthy for {}", e->op, e->call));
    for (const Candidate& c : e->candidates)
      s.note(fmt::format("{}: {}: {}", c.id, c.reason, c.detail));
    return s;
  }
  Resolution r;
  r.op = e->op, r.kernel = e->selected, r.generation = e->generation;
  for (const Candidate& c : e->candidates)
    if (c.verdict == "selected")
      r.backend = c.backend, r.vendor = c.vendor, r.kind = c.kind;
    else if (c.verdict == "able")
      r.fallbacks.push_back(c.id);
  return r;
}

struct Named : dispatch::FoundOp {
  op::Arguments arguments;
};

Result<Named> name_arguments(const detail::Core& core, std::string_view op,
                             std::span<const Arg> args,
                             op::Positional positional = op::Positional::kAll) {
  YARD_ASSIGN_OR_RETURN(auto found, core.sites.find(op));
  std::vector<op::Given> given;
  for (const Arg& a : args) given.push_back({a.name, a.value.c()});
  YARD_ASSIGN_OR_RETURN(auto bound, op::bind(*found.record->op->program, given, positional));
  return Named{std::move(found), bound};
}

using Totals = decltype(std::declval<health::CallTable>().totals());

KernelInfo describe_kernel(const dispatch::Entry& entry, size_t i, const yard_host_t* host,
                           const Totals& totals) {
  const select::KernelCandidate& c = entry.candidates().all()[i];
  const registry::Kernel& k = *c.kernel;
  KernelInfo info;
  info.op = k.op, info.id = k.id, info.backend = k.backend_name, info.vendor = k.backend->vendor;
  info.summary = k.summary, info.kind = k.kind, info.priority = k.priority, info.flags = k.d.flags;
  std::string text;
  const yard_verdict_t v = select::standing(c, host, &text);
  info.available = v.reason == YARD_REASON_NONE;
  if (!info.available) {
    info.reason = select::reason_name(v.reason);
    info.detail = select::describe(entry.candidates(), c, v, text);
  }
  if (const auto all = totals.find({k.op, k.id}); all != totals.end()) {
    const auto own = entry.stats(i).own(all->second);
    info.calls = own.calls, info.failures = own.failures;
  }
  return info;
}

}  // namespace

Status::Rep* detail::call_shared(std::string_view op, std::span<const Arg> args) {
  return base::or_out_of_memory([&] { return Runtime::shared().call(op, args); }).release();
}

Status Runtime::call(std::string_view op, std::span<const Arg> args) {
  return Status::adopt(dispatch::call_named(core(), op, args));
}

Status Runtime::call(std::string_view op, std::span<const Arg> args, const Options& o) {
  return base::or_out_of_memory([&]() -> Status {
    YARD_ASSIGN_OR_RETURN(const auto bound, dispatch::bind_named(core(), op, args));
    return dispatch::call_with_options(*bound.site, bound.cells(), o);
  });
}

Status Runtime::call(std::string_view op, std::initializer_list<Arg> args) {
  return call(op, std::span(args.begin(), args.size()));
}
Status Runtime::call(std::string_view op, std::initializer_list<Arg> args, const Options& o) {
  return call(op, std::span(args.begin(), args.size()), o);
}

Result<Explanation> Runtime::explain(std::string_view op, std::initializer_list<Arg> args,
                                     const Options& o) const {
  return explain(op, std::span(args.begin(), args.size()), o);
}
Result<Explanation> Runtime::explain(std::string_view op, std::span<const Arg> args,
                                     const Options& o) const {
  return base::or_out_of_memory([&]() -> Result<Explanation> {
    YARD_ASSIGN_OR_RETURN(const auto named, name_arguments(core(), op, args));
    return dispatch::explain_call(core(), named, {named.arguments.values, named.arguments.count},
                                  o);
  });
}

Result<Resolution> Runtime::resolve(std::string_view op, std::initializer_list<Arg> args,
                                    const Options& o) const {
  return base::or_out_of_memory([&] { return resolution(explain(op, args, o)); });
}

Result<Explanation> Runtime::explain(std::string_view call_spec, const Options& o) const {
  return base::or_out_of_memory([&]() -> Result<Explanation> {
    YARD_ASSIGN_OR_RETURN(auto spec, op::parse_call_spec(call_spec));
    return dispatch::explain_call(core(), spec, o);
  });
}

Result<Resolution> Runtime::resolve(std::string_view call_spec, const Options& o) const {
  return base::or_out_of_memory([&] { return resolution(explain(call_spec, o)); });
}

Result<ParsedCall> Runtime::parse(std::string_view call_spec) const {
  return base::or_out_of_memory([&]() -> Result<ParsedCall> {
    YARD_ASSIGN_OR_RETURN(auto spec, op::parse_call_spec(call_spec));
    YARD_ASSIGN_OR_RETURN(const auto found, core().sites.find(spec.op));
    const registry::Op& op = *found.record->op;
    YARD_ASSIGN_OR_RETURN(auto call, op::Call::from_spec(*op.program, spec, &op.d));
    return verification::parsed_call(*op.program, call);
  });
}

Result<std::vector<TensorView>> Runtime::infer(std::string_view op,
                                               std::initializer_list<Arg> args) const {
  return infer(op, std::span(args.begin(), args.size()));
}
Result<std::vector<TensorView>> Runtime::infer(std::string_view op,
                                               std::span<const Arg> args) const {
  return base::or_out_of_memory([&]() -> Result<std::vector<TensorView>> {
    YARD_ASSIGN_OR_RETURN(const auto named,
                          name_arguments(core(), op, args, op::Positional::kInputs));
    const registry::Op& o = *named.record->op;
    const dispatch::WithFacts facts({named.arguments.values, named.arguments.count});
    YARD_ASSIGN_OR_RETURN(auto outputs, o.program->infer_outputs(facts.args(), &o.d));
    std::vector<TensorView> to;
    for (const op::OutputSpec& s : outputs) {
      if (!s.known) return base::failure(Code::kUnsupported, "op '{}' has an output list", op);
      to.emplace_back(static_cast<void*>(nullptr), s.dtype,
                      std::span(s.shape.dims, static_cast<size_t>(s.shape.rank)));
    }
    return to;
  });
}

const OpInfo* Listing::find_op(std::string_view name) const noexcept {
  for (const OpInfo& o : ops)
    if (o.name == name) return &o;
  return nullptr;
}

Listing Runtime::list() const {
  const auto s = core().snapshot();
  const Totals totals = core().calls->totals();
  Listing to;
  to.generation = s->generation;
  for (const auto& [name, op_record] : s->state->op_records) {
    OpInfo op{name, op_record->op->schema, op_record->op->summary, {}, op_record->op->tolerances};
    const dispatch::Entry& entry = *s->entry(op_record->op->index);
    for (size_t i = 0; i < entry.candidates().all().size(); ++i)
      op.kernels.push_back(describe_kernel(entry, i, core().host, totals));
    to.ops.push_back(std::move(op));
  }
  for (const auto& [name, backend] : s->state->backends) {
    BackendInfo b{name, backend->vendor, backend->summary, true, {}, {}, 0};
    const registry::DeviceProbe& probe = backend->probe({backend->d.device_type, 0}, core().host);
    if (s->forked && (backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0) {
      b.available = false, b.reason = select::reason_name(YARD_REASON_FORKED);
    } else if (!probe.available) {
      b.available = false, b.reason = select::reason_name(YARD_REASON_UNAVAILABLE);
      b.detail = probe.text;
    }
    for (const OpInfo& op : to.ops)
      for (const KernelInfo& k : op.kernels) b.kernels += k.backend == name;
    to.backends.push_back(std::move(b));
  }
  return to;
}

std::vector<KernelInfo> Listing::find_kernels(std::string_view id) const {
  std::vector<KernelInfo> to;
  for (const OpInfo& op : ops)
    for (const KernelInfo& k : op.kernels)
      if (k.id == id) to.push_back(k);
  return to;
}

Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o) {
  return base::or_out_of_memory([&] { return Runtime::shared().call(op, args, o); });
}
Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args, const Options& o) {
  return base::or_out_of_memory([&] { return Runtime::shared().resolve(op, args, o); });
}
Result<Resolution> resolve(std::string_view call_spec, const Options& o) {
  return base::or_out_of_memory([&] { return Runtime::shared().resolve(call_spec, o); });
}
Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                            const Options& o) {
  return base::or_out_of_memory([&] { return Runtime::shared().explain(op, args, o); });
}
Result<Explanation> explain(std::string_view call_spec, const Options& o) {
  return base::or_out_of_memory([&] { return Runtime::shared().explain(call_spec, o); });
}

}  // namespace yard
