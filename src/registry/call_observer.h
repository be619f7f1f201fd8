// SPDX-License-Identifier: Apache-2.0
// How somebody above is told of calls, without the dispatcher knowing whom.
#pragma once

#include <yard/plugin.h>

#include <cstdint>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::registry {

// A call that is about to run. Borrows everything.
struct ObservedCall {
  const op::Program& program;
  uint32_t index;            // of the op: it belongs to one schema for ever
  const yard_value_t* args;  // that fit, with facts
  uint32_t flags;            // YARD_CALL_*
  const op::Labels& labels;  // of process, scope and call together
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Any thread, several at once, inside the guard of the call.
  virtual void seen(const ObservedCall& call) noexcept = 0;
  // In a forked child, where this is the only thread: locks that others held are not to be waited for.
  virtual void forked() noexcept = 0;
};

}  // namespace yard::registry
