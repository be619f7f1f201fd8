// SPDX-License-Identifier: Apache-2.0
// Interface by which a higher layer observes calls.
#pragma once

#include <yard/plugin.h>

#include <cstdint>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::registry {

// A call that is about to run. Owns nothing.
struct ObservedCall {
  const op::Program& program;
  uint32_t index;            // of the op; never reused for another schema
  const yard_value_t* args;  // checked, with facts
  uint32_t flags;            // YARD_CALL_*
  const op::Labels& labels;  // of process, scope and call together
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Any thread, concurrently, inside of the guard of the call.
  virtual void seen(const ObservedCall& call) noexcept = 0;
  // In a forked child, which has only this thread: locks of other threads must not be waited for.
  virtual void forked() noexcept = 0;
};

}  // namespace yard::registry
