// SPDX-License-Identifier: Apache-2.0
// Reading calls from text against the ops of a runtime.
#include <yard/call_spec.h>
#include <yard/runtime.h>

#include "dispatch/core.h"
#include "op/call.h"
#include "tune/parsed_call.h"

namespace yard {

Result<ParsedCall> Runtime::parse(std::string_view call_spec) const {
  auto spec = op::parse_call_spec(call_spec);
  if (!spec.ok()) return std::move(spec).status();
  auto s = core().snapshot();
  const registry::OpRecord* op_record = s->state->find(spec->op);
  if (core().sites.first_need(spec->op, op_record)) {
    s = core().snapshot();
    op_record = s->state->find(spec->op);
  }
  if (op_record == nullptr) return core().sites.unknown_op(*s->state, spec->op);
  const op::Program& program = *op_record->op->program;
  auto call = op::Call::from_spec(program, *spec, &op_record->op->d);
  if (!call.ok()) return std::move(call).status();
  return tune::parsed_call(program, *call);
}

}  // namespace yard
