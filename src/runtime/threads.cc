// SPDX-License-Identifier: Apache-2.0
// Cutting loops into pieces that several threads run.
#include "runtime/host.h"

#include <sched.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/runtime.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/cancellation.h"
#include "base/float_state.h"
#include "base/fork.h"
#include "dispatch/scope.h"
#include "runtime/worker_pool.h"

namespace yard::runtime {

// What a thread that runs a piece takes over from the caller for that time: the policy scope, the hooks, and that it is
// inside a call, where waiting for calls to end would be waiting for itself. The caller waits, so all of it stays valid.
class CallerContext {
 public:
  static CallerContext of_this_thread() noexcept {
    const detail::ThreadHead* head = detail::t_thread;
    return head != nullptr ? CallerContext{head->scope_state, head->hooks, head->depth > 0}
                           : CallerContext{nullptr, nullptr, false};
  }

  // Applies it to this thread until the object's end.
  class Applied {
   public:
    explicit Applied(const CallerContext& caller) noexcept
        : head_(detail::t_thread != nullptr ? *detail::t_thread : detail::register_thread()),
          scope_(head_, caller.scope_),
          own_hooks_(std::exchange(head_.hooks, caller.hooks_)) {
      if (caller.inside_call_) inside_.emplace(head_);
    }
    ~Applied() { head_.hooks = own_hooks_; }
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    detail::ThreadHead& head_;
    detail::ScopeOfCaller scope_;
    const detail::HookFrame* own_hooks_;
    std::optional<detail::Guard> inside_;
  };

 private:
  CallerContext(const detail::ScopeState* scope, const detail::HookFrame* hooks,
                bool inside_call) noexcept
      : scope_(scope), hooks_(hooks), inside_call_(inside_call) {}
  const detail::ScopeState* scope_;
  const detail::HookFrame* hooks_;
  bool inside_call_;
};

namespace {

// One loop; each thread that works on it takes piece after piece.
class ParallelLoop final : public WorkerPool::Job {
 public:
  ParallelLoop(int64_t count, int64_t pieces, LoopBody body, void* context) noexcept
      : count_(count), pieces_(pieces), body_(body), context_(context) {}

  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  // Lets no exception out.
  void work() noexcept override {
    // Without memory for what it needs to make calls, a thread leaves the work to others.
    const bool is_caller = std::this_thread::get_id() == caller_;
    if (!is_caller && detail::t_thread == nullptr && detail::try_register_thread() == nullptr)
      return;
    int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces_) return;
    std::optional<CallerContext::Applied> context;
    if (!is_caller) context.emplace(context_of_caller_);
    for (; piece < pieces_ && !failed(); piece = next_.fetch_add(1, std::memory_order_relaxed))
      run(piece);
  }

 private:
  void run(int64_t piece) noexcept {
    const base::FloatState restored;  // the thread will run pieces of others
    try {
      body_(context_, edge(piece), edge(piece + 1));
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
    }
  }
  // Where a piece begins. Pieces differ by at most one, so none is smaller than count / pieces.
  int64_t edge(int64_t piece) const noexcept {
    const int64_t each = count_ / pieces_, rest = count_ % pieces_;
    return piece * each + (piece < rest ? piece : rest);
  }

  const int64_t count_, pieces_;
  const LoopBody body_;
  void* const context_;
  const std::thread::id caller_ = std::this_thread::get_id();
  const CallerContext context_of_caller_ = CallerContext::of_this_thread();
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<int64_t> next_{0};
};

// How many pieces a thread gets on average: few enough to cost nothing, enough to even out.
constexpr int64_t kPiecesPerThread = 4;

std::atomic<int32_t> g_thread_limit{0};  // 0: none

int32_t run_here(int64_t count, LoopBody body, void* context) {
  try {
    body(context, 0, count);
    return YARD_OK;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return YARD_FAULT;
  }
}

}  // namespace

int32_t parallel_for_on(int32_t threads, int64_t count, int64_t grain, LoopBody body,
                        void* context) {
  if (count <= 0) return YARD_OK;
  const int64_t most = count / std::max<int64_t>(grain, 1);
  if (most <= 1 || threads <= 1) return run_here(count, body, context);
  // A cancelled thread cannot leave a loop that others work on.
  const base::CancellationOff cancellation_off;
  const uint64_t process = base::forks();
  const int64_t pieces = std::min(most, threads * kPiecesPerThread);
  ParallelLoop loop(count, pieces, body, context);
  try {
    WorkerPool::get().run(loop, static_cast<int32_t>(std::min<int64_t>(threads, pieces) - 1));
  } catch (...) {
    return YARD_FAULT;  // no memory for the pool
  }
  // In a child that a piece has forked, pieces of threads that are not there are missing.
  return loop.failed() || base::forks() != process ? YARD_FAULT : YARD_OK;
}

int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context) {
  const bool one_piece = count / 2 < std::max<int64_t>(grain, 1);
  return parallel_for_on(one_piece ? 1 : concurrency(), count, grain, body, context);
}

int32_t concurrency() noexcept {
  const int32_t limit = g_thread_limit.load(std::memory_order_relaxed);
  if (limit == 1) return 1;
  cpu_set_t set;
  const int32_t cpus = sched_getaffinity(0, sizeof set, &set) == 0
                           ? CPU_COUNT(&set)
                           : static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::max(limit > 0 ? std::min(limit, cpus) : cpus, 1);
}

}  // namespace yard::runtime

void yard::Runtime::limit_threads(int32_t most) noexcept {
  runtime::g_thread_limit.store(std::max(most, 0), std::memory_order_relaxed);
}
