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
  const registry::Family* family = s->state->find(spec->op);
  if (core().first_need(spec->op, family)) {
    s = core().snapshot();
    family = s->state->find(spec->op);
  }
  if (family == nullptr) return core().unknown_op(*s->state, spec->op);
  const op::Program& program = *family->op->program;
  auto call = op::Call::from_spec(program, *spec, &family->op->d);
  if (!call.ok()) return std::move(call).status();
  return tune::parsed_call(program, *call);
}

}  // namespace yard
