// SPDX-License-Identifier: Apache-2.0
// Listing what a runtime knows.
#include <yard/runtime.h>

#include "dispatch/core.h"
#include "select/explain.h"
#include "select/reasons.h"

namespace yard {
namespace {

using Totals = decltype(std::declval<telemetry::CallTable>().totals());

KernelInfo describe_kernel(const detail::Entry& entry, size_t i, const yard_host_t* host,
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
    const detail::Entry& entry = *s->entry(op_record->op->index);
    for (size_t i = 0; i < entry.candidates().all().size(); ++i)
      op.kernels.push_back(describe_kernel(entry, i, core().host, totals));
    to.ops.push_back(std::move(op));
  }
  for (const auto& [name, backend] : s->state->backends) {
    BackendInfo b{name, backend->vendor, backend->summary, true, {}, {}, 0};
    const registry::Probe& probe = backend->probe({backend->d.device_type, 0}, core().host);
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

std::vector<KernelInfo> Runtime::find_kernels(std::string_view id) const {
  std::vector<KernelInfo> to;
  for (OpInfo& op : list().ops)
    for (KernelInfo& k : op.kernels)
      if (k.id == id) to.push_back(std::move(k));
  return to;
}

}  // namespace yard
