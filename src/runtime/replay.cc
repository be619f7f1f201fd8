// SPDX-License-Identifier: Apache-2.0
// Running a canary's dump again: see yard/verify.h.
#include <fmt/format.h>
#include <yard/verify.h>

#include "base/text.h"
#include "dispatch/core.h"
#include "tune/canary.h"
#include "tune/case_run.h"
#include "tune/parsed_call.h"

namespace yard {
namespace {

Result<const registry::Kernel*> kernel_of(const registry::OpRecord& op_record,
                                          std::string_view id) {
  const auto it = op_record.kernels.find(std::string(id));
  if (it != op_record.kernels.end()) return it->second.get();
  std::vector<std::string> ids;
  for (const auto& [name, kernel] : op_record.kernels) ids.push_back(name);
  return Status(Code::kNotFound, fmt::format("op '{}' has no kernel {}{}", op_record.op->name,
                                             base::excerpt(id), base::did_you_mean(id, ids)));
}

Result<const registry::Kernel*> right_kernel(const registry::OpRecord& op_record,
                                             const std::string& against) {
  if (!against.empty()) return kernel_of(op_record, against);
  if (const registry::Kernel* oracle = tune::oracle_of(op_record)) return oracle;
  return Status(Code::kNotFound,
                fmt::format("op '{}' has no reference kernel", op_record.op->name));
}

Status check_takes(const tune::Candidate& candidate, const op::Call& call) {
  tune::Outcome why;
  if (candidate.takes(call, &why)) return {};
  return Status(Code::kUnsupported, fmt::format("kernel '{}' does not take the call: {}",
                                                candidate.kernel().id, why.what));
}

}  // namespace

Result<CanaryReplay> replay(const Runtime& runtime, const CanaryDump& dump,
                            std::string_view kernel) {
  detail::Core& core = runtime.core();
  const auto spec = op::parse_call_spec(dump.mismatch.call);
  if (!spec.ok()) return spec.status();
  auto s = core.snapshot();
  if (core.sites.first_need(spec->op, s->state->find(spec->op))) s = core.snapshot();
  const auto found = s->state->op_records.find(spec->op);
  if (found == s->state->op_records.end()) return core.sites.unknown_op(*s->state, spec->op);
  const registry::Op& op = *found->second->op;
  const auto call = op::Call::from_spec(*op.program, *spec, &op.d);
  if (!call.ok()) return call.status();

  const auto tried = kernel_of(*found->second, kernel.empty() ? dump.mismatch.kernel : kernel);
  if (!tried.ok()) return tried.status();
  const auto right = right_kernel(*found->second, dump.mismatch.against);
  if (!right.ok()) return right.status();
  const tune::Subject subject{found->second, {}, {core.host, s->forked}};
  const tune::Candidate candidate(subject, **tried), oracle(subject, **right);
  YARD_RETURN_IF_ERROR(check_takes(oracle, *call));
  YARD_RETURN_IF_ERROR(check_takes(candidate, *call));

  const ParsedCall parsed = tune::parsed_call(*op.program, *call);
  YARD_RETURN_IF_ERROR(CallTensors::check(parsed, 2));
  CallTensors results(parsed, 1), expected(parsed, 1);
  YARD_RETURN_IF_ERROR(results.fill(dump.inputs));
  YARD_RETURN_IF_ERROR(expected.fill(dump.inputs));
  // First, since it tells numbers that mean nothing (indices beyond a table) from those that do.
  if (Status ran = oracle.run(*call, expected); !ran.ok())
    return std::move(ran).note("while running the kernel that is right");

  CanaryReplay to;
  to.op = op.name, to.kernel = (*tried)->id, to.against = (*right)->id, to.call = parsed.text;
  to.status = candidate.run(*call, results);
  to.damage = results.damage();
  if (to.status.ok())
    to.difference = compare(results.written(), expected.written(),
                            tune::tolerances_of(op, dump.rtol, dump.atol));
  return to;
}

}  // namespace yard
