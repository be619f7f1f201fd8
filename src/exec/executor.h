// SPDX-License-Identifier: Apache-2.0
// Plans, which hold the kernels that run the calls of a shape class, and running them: the context of a call, workspaces,
// and fallback after a failure.
#pragma once

#include <yard/detail/call.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include "base/log.h"
#include "base/reclaimer.h"
#include "health/call_table.h"
#include "registry/interfaces.h"

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

// ---- Plans ----

// Shared by all entries that list a kernel.
struct KernelStats {
  // What kernels of its id had done before: those of an upgraded plugin start at zero.
  health::CallTotals before;
  uint64_t forks = base::forks();  // of the process that had done that
  // What this kernel has done, if kernels of its id have done `now`.
  health::CallTotals own(health::CallTotals now) const noexcept {
    if (forks != base::forks()) return now;  // kernels of a forked child start at zero, too
    return {now.calls - before.calls, now.failures - before.failures};
  }
  mutable base::LogLimit failed, fell_back;  // of its log messages
};

// One kernel of a plan. Borrowed: the entry that the plan belongs to owns both.
struct Attempt {
  const registry::Kernel* kernel;
  const KernelStats* stats;
};

// A plan holds no sizes of a call.
struct Plan {
  static constexpr size_t kMaxAttempts = 8;

  // Read by a hit.
  uint64_t hash = 0;
  int32_t (*run)(yard_call_t*, const yard_value_t*, uint32_t) = nullptr;
  void* self = nullptr;
  uint32_t counter = base::kNoCounter;  // of `series`
  uint16_t key_words = 0;
  uint8_t attempt_count = 0;
  uint8_t tries = 0;    // the limit of attempts that one call may run
  bool direct = false;  // the first kernel can be called without workspace and state, and unwatched
  bool only_workspace = false;  // the same but for its workspace
  // Whether it was used again since it was made or since the last eviction, which then keeps it.
  mutable std::atomic<bool> used_again{false};
  // The number of handles that use it; a pinned plan is not evicted. Changed under the plan lock.
  mutable std::atomic<uint32_t> pins{0};
  Mode modes[kMaxAttempts] = {};  // what decided the place of each attempt
  Attempt attempts[kMaxAttempts] = {};
  // Its calls are counted in its shape class, and there in the series of the first kernel. Null if they are not counted.
  const health::CallClass* call_class = nullptr;
  health::Series* series = nullptr;

  // Writes at most once between two evictions, because calls of other threads read the line.
  void note_use() const noexcept {
    if (!used_again.load(std::memory_order_relaxed)) [[unlikely]]
      used_again.store(true, std::memory_order_relaxed);
  }

  // Called once the modes are known.
  void count_in(const health::CallClass& c) noexcept {
    call_class = &c, series = c.series(attempts[0].kernel->id, modes[0]);
    if (series != nullptr) counter = series->calls.id();
  }
  // The series of an attempt; null if it is not counted. Beyond the first it takes a lock.
  health::Series* series_of(size_t attempt) const noexcept {
    if (attempt == 0 || call_class == nullptr) return series;
    return call_class->series(attempts[attempt].kernel->id, modes[attempt]);
  }

  // The key follows the plan in memory.
  const uint64_t* key() const noexcept { return reinterpret_cast<const uint64_t*>(this + 1); }

  static void operator delete(void* p) noexcept { ::operator delete(p); }  // with its key
  using Ptr = std::unique_ptr<Plan>;
  // There is at least one attempt, and the best comes first. Those beyond kMaxAttempts are ignored.
  static Ptr make(uint64_t hash, std::span<const uint64_t> key, std::span<const Attempt> attempts);
};
static_assert(sizeof(Plan) <= 300 - 4 * sizeof(uint64_t), "a plan stays within 300 bytes");

// ---- Running them ----

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
