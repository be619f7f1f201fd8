// SPDX-License-Identifier: Apache-2.0
// Running plans: the context of a call, workspaces, and fallback after a failure.
#pragma once

#include <yard/detail/call.h>
#include <yard/options.h>
#include <yard/plugin.h>
#include <yard/status.h>

#include <algorithm>
#include <cstdio>

#include "base/reclaimer.h"
#include "exec/plan.h"
#include "op/program.h"
#include "registry/interfaces.h"
#include "registry/records.h"

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

inline constexpr size_t kErrorBytes = detail::ThreadHead::kErrorBytes;

// Memory for a kernel that is running, aligned to 64 bytes. Null if there is none. Freed when the kernel returns.
void* allocate_scratch(yard_call_t& call, uint64_t bytes) noexcept;

// The context that a kernel gets and the buffer for its message. Lives on the stack.
struct CallFrame {
  yard_call_t call;
  bool changed_float_state = false;  // found by run_kernel(), which has restored it
  bool wrote_buffers_only = false;   // a kernel that failed has not written to the caller's tensors
  ResultRecord* record = nullptr;    // gets the times of transforms; if null, none are taken
  char error[kErrorBytes];

  CallFrame(const yard_host_t* host, uint32_t flags, void* self) noexcept {
    detail::start_call(call, error, flags, host, self);
  }
  CallFrame& operator=(CallFrame&&) = delete;
  // Sets the message of a failure. Returns its code.
  int32_t fail(int32_t code, std::string_view why) noexcept {
    std::snprintf(error, sizeof error, "%.*s", static_cast<int>(why.size()), why.data());
    return code;
  }
};

// Limits which calls reach some kernels of a plan.
class AdmissionCheck {
 public:
  virtual ~AdmissionCheck() = default;
  virtual bool admits(size_t attempt) = 0;  // called at most once for each attempt
  virtual bool is_probe(size_t /*attempt*/) const noexcept { return false; }
};

// A call without its plan.
struct Request {
  const char* op;
  const yard_host_t* host;
  const yard_value_t* args;  // with facts
  uint32_t count;
  uint32_t flags;      // YARD_CALL_*
  bool strict;         // no fallback
  bool writes_inputs;  // the op has `~` arguments
  const Options* options = nullptr;
  const yard_value_t* given = nullptr;   // the caller's arguments, passed to kernels; null: args
  const op::Program* program = nullptr;  // with `states`, for kernels with state
  States* states = nullptr;
  bool trace = false;  // kernels trace the call instead of running it
  bool save = false;   // copy inputs that a kernel may overwrite before it fails
  registry::ResultChecker* checker = nullptr;  // checks the results of kernels
  const op::Labels* labels = nullptr;          // of process and scope, for the checker
  bool check_always = false;                   // checks the call even if it is not sampled
  bool time_checks = false;                    // fills in Outcome::checking_ns
  bool selected = false;                       // the call had no plan
  int64_t select_ns = 0;                       // then: what the selection took
  ResultRecord* record = nullptr;  // instead of that of the options; its `run_ns` is not filled in
  AdmissionCheck* admission = nullptr;  // rejected attempts are skipped, unless no other is left
};

struct Failure {
  const Attempt* attempt;
  ErrorClass error;
  int32_t code;         // returned by the kernel
  std::string message;  // from the kernel; never empty
  bool wrong = false;   // it returned YARD_OK, and its results were found wrong
};

// The result of each kernel that a call ran, for health.
struct Outcome {
  std::vector<Failure> failures;     // in the order of the attempts
  const Attempt* served = nullptr;   // null if none did
  health::Series* series = nullptr;  // where the call was counted; null if it was not
  bool checked = false;              // the results of `served` were checked and are right
  bool unjudged = false;             // a check of them began, and could not be made
  uint64_t checking_ns = 0;          // spent on checks of results, with Request::time_checks
  bool changed_float_state = false;  // by a kernel; it was restored
  bool found_wrong() const noexcept { return std::ranges::any_of(failures, &Failure::wrong); }
};

// Runs one kernel, with workspace, state and transforms of its arguments. Exceptions become YARD_FAULT with their text; only
// the forced unwinding of a thread that ends passes.
int32_t run_kernel(base::ThreadRecord& thread, const registry::Kernel& kernel, CallFrame& frame,
                   const Request& request);

// Gives a call the workspace that its kernel asks for, and `more` bytes before it, at `*before`. `args` have facts.
int32_t give_workspace(base::ThreadRecord& thread, const registry::Kernel& kernel,
                       yard_call_t& call, const yard_value_t* args, uint32_t count,
                       uint64_t more = 0, std::byte** before = nullptr);

// Runs the plan's kernels in order until one succeeds or a failure must be returned. `outcome` is empty at first.
Status execute(base::ThreadRecord& thread, const Plan& plan, const Request& request,
               Outcome& outcome);
// The same after the first kernel has run and failed with `code`.
Status execute_after_failure(base::ThreadRecord& thread, const Plan& plan, const Request& request,
                             int32_t code, const char* message, Outcome& outcome);

void note_kernel(ResultRecord& record, const std::string& id) noexcept;
// Returns `failed`, the error of a kernel, or the refusal of a nested call if the kernel failed because of it. `guarded`
// says whether the thread is inside the guard of the kernel's call.
Status refusal_or(base::ThreadRecord& thread, Status failed, bool guarded);
Status kernel_failure(const char* op, const registry::Kernel& kernel, int32_t code,
                      const char* message);

}  // namespace yard::exec
