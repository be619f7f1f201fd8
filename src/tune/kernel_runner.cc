// SPDX-License-Identifier: Apache-2.0
#include "tune/kernel_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fork.h"
#include "base/results.h"
#include "exec/executor.h"
#include "op/bind.h"
#include "select/reasons.h"
#include "select/select.h"
#include "tune/call_copy.h"

namespace yard::tune {
namespace {

// Counts of test runs, which are not reported.
constinit base::Lazy<const exec::KernelStats> g_unreported([]() -> const exec::KernelStats* {
  return new exec::KernelStats;
});

std::vector<exec::Attempt> one_attempt(const registry::Kernel& kernel) {
  return {{&kernel, &g_unreported.get()}};
}

}  // namespace

KernelRunner::KernelRunner(const OpUnderTest& op, const registry::Kernel& kernel)
    : candidates_(select::CandidateSet::make(op.op_record, Policy(), {kernel.id, {}}, op.where)),
      plan_(exec::Plan::make(0, {}, one_attempt(kernel))),
      kernel_(kernel) {
  for (size_t i = 0; i < candidates_.all().size(); ++i)
    if (candidates_.all()[i].kernel->id == kernel.id) index_ = i;
}

std::string KernelRunner::unavailable() const {
  const registry::Backend& backend = *kernel_.backend;
  const registry::Probe& probe =
      backend.probe({std::max(backend.d.device_type, 1), 0}, candidates_.host());
  if (probe.available) return {};
  return fmt::format("backend '{}' is not available: {}", backend.name, probe.text);
}

bool KernelRunner::accepts(const op::Call& call, Outcome* why) const {
  select::Notes notes;
  const auto order = select::select(candidates_, call.args(), call.count(), call.flags(), &notes);
  if (!order.empty()) return true;
  if (why != nullptr) {
    const select::Notes::Entry& e = notes.entries[index_];
    why->verdict = Outcome::Verdict::kSkipped;
    why->reason = select::reason_name(e.verdict.reason);
    why->what = select::describe(candidates_, candidates_.all()[index_], e.verdict, e.text);
  }
  return false;
}

Status KernelRunner::run(const op::Call& call, const CallTensors& tensors, exec::States* states,
                         bool* changed_float_state) const {
  const op::Program& program = candidates_.program();
  std::vector<op::Given> given;
  for (const Arg& a : tensors.args()) given.push_back({a.name, a.value.c()});
  YARD_ASSIGN_OR_RETURN(auto bound, op::bind(program, given));
  return run(bound.values, bound.count, call.flags(), states, changed_float_state);
}

CallLimits KernelRunner::limits() const {
  std::vector<op::Predicate> predicates;
  for (const select::Limit& l : candidates_.all()[index_].limits) predicates.push_back(l.predicate);
  CallLimits to = CallLimits::of(candidates_.program(), predicates, kernel_.d.flags);
  if (kernel_.needs_weights) to.flags |= YARD_CALL_LOADED;
  return to;
}

Status KernelRunner::run(const yard_value_t* args, uint32_t count, uint32_t flags,
                         exec::States* states, bool* changed_float_state) const {
  const op::Program& program = candidates_.program();
  base::ThreadRecord& thread = base::this_thread();
  // Kernels expect to run inside of a call. The op record keeps alive what they use; the slot protects nothing.
  const base::Guard guard(thread);
  const exec::Request request{.op = program.name().c_str(),
                              .host = candidates_.host(),
                              .args = args,
                              .count = count,
                              .flags = flags,
                              .strict = true,
                              .writes_inputs = program.has_inout(),
                              .program = &program,
                              .states = states != nullptr ? states : states_.get(),
                              .check_float_state = true};
  exec::Outcome outcome;
  Status s = exec::execute(thread, *plan_, request, outcome);
  if (changed_float_state != nullptr) *changed_float_state = outcome.changed_float_state;
  return s;
}

CaseRun::CaseRun(const op::Program& program, Case c, std::unique_ptr<TestInstance> used)
    : call(std::move(c.call)),
      parsed(parsed_call(program, call)),
      found(parsed, c.seed, c.contents),
      expected(parsed, c.seed, c.contents),
      instance(std::move(used)) {
  if (instance != nullptr) {
    instance->load(found.args());
    where.options = instance->options, where.weights = instance->loaded;
  }
  where.call = parsed.text, where.contents = c.contents, where.seed = c.seed;
}

const registry::Kernel* reference_kernel(const registry::OpRecord& op_record) {
  const registry::Kernel* best = nullptr;
  for (const auto& [id, k] : op_record.kernels)
    if (k->kind == Kind::kReference && (best == nullptr || k->priority > best->priority))
      best = k.get();
  return best;
}

uint64_t seed_of(const op::Program& program, uint64_t seed) {
  for (const char c : program.name()) seed = seed * 31 + static_cast<unsigned char>(c);
  return seed;
}

}  // namespace yard::tune
