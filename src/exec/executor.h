// SPDX-License-Identifier: Apache-2.0
// A Plan holds the kernels that run the calls of a shape class. execute() gives each kernel its
// context and workspace, and falls back to the next kernel after a failure.
#pragma once

#include <yard/detail/call.h>

#include <cstdio>

#include "base/log.h"
#include "base/reclaimer.h"
#include "health/call_table.h"
#include "registry/interfaces.h"

namespace yard::detail {

// Frees the call's scratch, too.
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

// Shared by all entries that list the kernel.
struct KernelStats {
  // Totals of earlier kernels with this id, so that a kernel of an upgraded plugin starts at zero.
  health::CallTotals before;
  uint64_t forks = base::forks();  // of the process that counted `before`
  // `now` are the totals of all kernels with this id.
  health::CallTotals own(health::CallTotals now) const noexcept {
    if (forks != base::forks()) return now;  // counters of a forked child start at zero
    return {now.calls - before.calls, now.failures - before.failures};
  }
  mutable base::LogLimit failed, fell_back;  // limits of its log messages
};

// The entry that the plan belongs to owns both objects.
struct Attempt {
  const registry::Kernel* kernel;
  const KernelStats* stats;
};

// A plan does not hold the sizes of a call.
struct Plan {
  static constexpr size_t kMaxAttempts = 8;

  // Every hit reads these members.
  uint64_t hash = 0;
  int32_t (*run)(yard_call_t*, const yard_value_t*, uint32_t) = nullptr;
  void* self = nullptr;
  uint32_t counter = base::kNoCounter;  // the counter of `series`
  uint16_t key_words = 0;
  uint8_t attempt_count = 0;
  uint8_t tries = 0;            // most attempts that one call may run
  bool direct = false;          // needs neither workspace nor state, and nothing watches its calls
  bool only_workspace = false;  // like `direct`, but the first kernel needs a workspace
  // Hits set this flag. An eviction clears it, and keeps plans that had it set.
  mutable std::atomic<bool> used_again{false};
  // Number of handles that use the plan. A pinned plan is not evicted. Changes need the plan lock.
  mutable std::atomic<uint32_t> pins{0};
  Mode modes[kMaxAttempts] = {};  // what decided the place of each attempt
  Attempt attempts[kMaxAttempts] = {};
  // The shape class and series that calls count in. Null if they are not counted.
  const health::CallClass* call_class = nullptr;
  health::Series* series = nullptr;

  // Writes at most once between two evictions, because other threads read this cache line.
  void note_use() const noexcept {
    if (!used_again.load(std::memory_order_relaxed)) [[unlikely]]
      used_again.store(true, std::memory_order_relaxed);
  }

  // Call this when the modes are known.
  void count_in(const health::CallClass& c) noexcept {
    call_class = &c, series = c.series(attempts[0].kernel->id, modes[0]);
    if (series != nullptr) counter = series->calls.id();
  }
  // Returns null if the attempt is not counted. Takes a lock for all attempts but the first.
  health::Series* series_of(size_t attempt) const noexcept {
    if (attempt == 0 || call_class == nullptr) return series;
    return call_class->series(attempts[attempt].kernel->id, modes[attempt]);
  }

  const uint64_t* key() const noexcept { return reinterpret_cast<const uint64_t*>(this + 1); }

  static void operator delete(void* p) noexcept { ::operator delete(p); }  // frees the key, too
  using Ptr = std::unique_ptr<Plan>;
  // Expects at least one attempt, best first. Attempts beyond kMaxAttempts are ignored.
  static Ptr make(uint64_t hash, std::span<const uint64_t> key, std::span<const Attempt> attempts);
};
static_assert(sizeof(Plan) <= 300 - 4 * sizeof(uint64_t), "a plan stays within 300 bytes");

inline constexpr size_t kErrorBytes = detail::ThreadHead::kErrorBytes;

// The memory is aligned to 64 bytes and freed when the kernel returns. Null if there is none left.
void* allocate_scratch(yard_call_t& call, uint64_t bytes) noexcept;

// The context of a kernel call, and the buffer for its message. Lives on the stack.
struct CallFrame {
  yard_call_t call;
  bool changed_float_state = false;  // run_kernel() found a change and undid it
  bool wrote_buffers_only = false;   // the kernel has not written to the caller's tensors
  ResultRecord* record = nullptr;    // gets the times of transforms, unless null
  char error[kErrorBytes];

  CallFrame(const yard_host_t* host, uint32_t flags, void* self) noexcept {
    detail::start_call(call, error, flags, host, self);
  }
  CallFrame& operator=(CallFrame&&) = delete;
  int32_t fail(int32_t code, std::string_view why) noexcept {
    std::snprintf(error, sizeof error, "%.*s", static_cast<int>(why.size()), why.data());
    return code;
  }
};

class AdmissionCheck {
 public:
  virtual ~AdmissionCheck() = default;
  virtual bool admits(size_t attempt) = 0;  // called at most once for each attempt
  virtual bool is_probe(size_t /*attempt*/) const noexcept { return false; }
};

struct Request {
  const char* op;
  const yard_host_t* host;
  const yard_value_t* args;  // with facts filled in
  uint32_t count;
  uint32_t flags;      // YARD_CALL_*
  bool strict;         // no fallback
  bool writes_inputs;  // the op has `~` arguments
  const Options* options = nullptr;
  const yard_value_t* given = nullptr;   // the caller's arguments, passed to kernels unless null
  const op::Program* program = nullptr;  // required with `states`, `save` or `checker`
  States* states = nullptr;
  bool trace = false;  // kernels trace the call instead of running it
  bool save = false;   // copy inputs that a kernel may overwrite before it fails
  registry::ResultChecker* checker = nullptr;  // checks the results of kernels
  const op::Labels* labels = nullptr;          // of process and scope, for the checker
  bool check_always = false;                   // checks the call even if it is not sampled
  bool time_checks = false;                    // fills in Outcome::checking_ns
  ResultRecord* record = nullptr;  // used instead of the options' record; its `run_ns` stays unset
  AdmissionCheck* admission = nullptr;  // rejected attempts are skipped, unless no other is left
};

struct Failure {
  const Attempt* attempt;
  ErrorClass error;
  int32_t code;         // returned by the kernel
  std::string message;  // from the kernel; never empty
  bool wrong = false;   // it returned YARD_OK, but its results are wrong
};

struct Outcome {
  std::vector<Failure> failures;     // in the order of the attempts
  const Attempt* served = nullptr;   // null if all kernels failed
  health::Series* series = nullptr;  // where the call was counted; null if it was not
  bool checked = false;              // the results of `served` were checked and are right
  bool unjudged = false;             // a check of the results began but could not judge them
  uint64_t checking_ns = 0;          // time of the checks, with Request::time_checks
  bool changed_float_state = false;  // a kernel changed it, and it was restored
  bool found_wrong() const noexcept { return std::ranges::any_of(failures, &Failure::wrong); }
};

// Exceptions become YARD_FAULT with their text. Only the forced unwinding of a thread passes.
int32_t run_kernel(base::ThreadRecord& thread, const registry::Kernel& kernel, CallFrame& frame,
                   const Request& request);

// Provides the kernel's workspace, and `more` bytes before it, at `*before`. `args` need facts.
int32_t give_workspace(base::ThreadRecord& thread, const registry::Kernel& kernel,
                       yard_call_t& call, const yard_value_t* args, uint32_t count,
                       uint64_t more = 0, std::byte** before = nullptr);

// Runs kernels until one succeeds or a failure must be returned. `outcome` must be empty.
Status execute(base::ThreadRecord& thread, const Plan& plan, const Request& request,
               Outcome& outcome);
// Continues a plan whose first kernel has run and failed with `code`.
Status execute_after_failure(base::ThreadRecord& thread, const Plan& plan, const Request& request,
                             int32_t code, const char* message, Outcome& outcome);

void note_kernel(ResultRecord& record, const std::string& id) noexcept;
Status kernel_failure(const char* op, const registry::Kernel& kernel, int32_t code,
                      const char* message);

}  // namespace yard::exec
