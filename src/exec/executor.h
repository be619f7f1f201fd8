// SPDX-License-Identifier: Apache-2.0
// Running plans: the call's context, workspace, exceptions, and what follows a failure.
#pragma once

#include <yard/detail/call.h>
#include <yard/options.h>
#include <yard/plugin.h>
#include <yard/status.h>

#include <cstddef>

#include "base/thread_record.h"
#include "exec/outcome.h"
#include "op/program.h"
#include "registry/inspector.h"

namespace yard::detail {

// Calls a kernel through `run` and frees the call's scratch.
template <class F>
[[gnu::always_inline]] inline int32_t call_kernel(yard_call_t& call, const F& run) {
  const int32_t code = enter_kernel(call, run);
  if (call.host_data != nullptr) [[unlikely]]
    free_call_scratch(&call);
  return code;
}

}  // namespace yard::detail

namespace yard::exec {

class States;

inline constexpr int kThreadLocal = 1;  // our index in ThreadRecord::locals
inline constexpr size_t kErrorBytes = detail::ThreadHead::kErrorBytes;

// Memory a kernel asked for while it ran; freed when it returns.
struct Scratch {
  Scratch* next;
};

// 64-byte aligned; null when there is none. Kept in a chain at the call's host_data.
void* allocate_scratch(yard_call_t& call, uint64_t bytes) noexcept;
void free_scratch(yard_call_t& call) noexcept;

// What a kernel is given, and the buffer for its message. Lives on the stack of one run; making one writes
// a few words and touches nothing else.
struct Frame {
  yard_call_t call;
  char error[kErrorBytes];

  Frame(const yard_host_t* host, uint32_t flags, void* self) noexcept {
    detail::start_call(call, error, flags, host, self);
  }
  ~Frame() {
    if (call.host_data != nullptr) [[unlikely]]
      free_scratch(call);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
};

// Has a say in which kernel of a plan serves the call.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // One has failed. Whether another may be tried.
  virtual bool may_change() = 0;
  // This one runs now.
  virtual void takes(const registry::Kernel& kernel) = 0;
};

// Keeps calls from some kernels of a plan.
class Door {
 public:
  virtual ~Door() = default;
  // An attempt is about to run; asked at most once for each.
  virtual bool admits(size_t attempt) = 0;
};

// Everything about a call but its plan.
struct Request {
  const char* op;
  const yard_host_t* host;
  const yard_value_t* args;  // with facts
  uint32_t count;
  uint32_t flags;      // YARD_CALL_*
  bool strict;         // no fallback
  bool writes_inputs;  // the op has `~` arguments
  const Options* options = nullptr;
  const yard_value_t* given = nullptr;  // the caller's own, which kernels get; null: args
  // For kernels with state; such a kernel declines a call that brings none.
  const op::Program* program = nullptr;
  States* states = nullptr;
  bool trace = false;  // the kernel is asked to trace the call instead of running it
  bool save = false;   // copies inputs that a kernel may write over before it fails
  // The plan's first kernel was chosen before and is the one that runs, whatever the door says.
  bool committed = false;
  registry::Inspector* inspector = nullptr;  // looks at what kernels do; null: nobody
  Chooser* chooser = nullptr;                // has a say in what runs; null: nobody
  Door* door = nullptr;  // whom it keeps out is skipped, unless nobody else is left; null: nobody
};

// Runs one kernel, workspace and state included; exceptions become YARD_FAULT with their text. Only the
// forced unwinding of a cancelled thread passes. Of the request only what a kernel needs is looked at.
int32_t run_kernel(base::ThreadRecord& thread, const registry::Kernel& kernel, Frame& frame,
                   const Request& request);

// Runs the plan's kernels in order until one succeeds or a failure must be returned. `outcome` starts empty.
Status execute(base::ThreadRecord& thread, const Plan& plan, const Request& request,
               Outcome& outcome);

// The same after the first kernel has run and failed with `code`.
Status execute_after_failure(base::ThreadRecord& thread, const Plan& plan, const Request& request,
                             int32_t code, const char* message, Outcome& outcome);

// For whoever wants no outcome.
inline Status execute(base::ThreadRecord& thread, const Plan& plan, const Request& request) {
  Outcome nobody_asks;
  return execute(thread, plan, request, nobody_asks);
}

// Writes down which kernel runs.
void note_kernel(ResultRecord& record, const std::string& id) noexcept;

// The error of one failed kernel.
Status kernel_failure(const char* op, const registry::Kernel& kernel, int32_t code,
                      const char* message);

}  // namespace yard::exec
