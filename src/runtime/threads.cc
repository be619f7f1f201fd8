// SPDX-License-Identifier: Apache-2.0
// Cutting loops into pieces that several threads run.
#include "runtime/host.h"

#include <sched.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/fork.h"
#include "base/thread_state.h"
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

// How a loop is cut: into units of at least the grain, and these into pieces. Each round has one for every thread, and takes
// half of what is left: a thread takes few pieces, and none of the last ones is long. But where a thread gets few units it
// takes them at once, and the more threads there are, the longer are the last pieces: all are taken from one word.
class Cut {
 public:
  Cut(int64_t count, int64_t units, int64_t threads) noexcept
      : count_(count),
        units_(units),
        threads_(threads),
        smallest_(units < 4 * threads ? (units + threads - 1) / threads
                                      : std::max<int64_t>(1, threads / 8)) {}
  int64_t pieces() const noexcept { return walk(std::numeric_limits<int64_t>::max()).piece; }
  // Calls body(begin, end) for a piece.
  template <class F>
  void run(int64_t piece, const F& body) const {
    const Walk w = walk(piece);
    const int64_t first = w.unit + (piece - w.piece) * w.size;
    body(edge(first), edge(std::min(first + w.size, units_)));
  }

 private:
  // The round that a piece is in: its first piece and unit, and how many units its pieces have; or the end.
  struct Walk {
    int64_t piece = 0, unit = 0, size = 0;
  };
  Walk walk(int64_t piece) const noexcept {
    Walk w;
    for (;;) {
      const int64_t left = units_ - w.unit;
      w.size = std::max(smallest_, left / (2 * threads_));
      const int64_t round =
          w.size > smallest_ ? threads_ : (left + smallest_ - 1) / smallest_;  // or the last one
      if (left <= 0 || piece - w.piece < round) return w;
      w.piece += round, w.unit += round * w.size;
    }
  }
  // Where a unit begins. They differ by at most one, so none is smaller than count / units.
  int64_t edge(int64_t unit) const noexcept {
    const int64_t each = count_ / units_, rest = count_ % units_;
    return unit * each + std::min(unit, rest);
  }

  int64_t count_, units_, threads_, smallest_;
};

// One loop; each thread that works on it takes piece after piece. What they read is in two cache lines.
class alignas(64) ParallelLoop final : public WorkerPool::Job {
 public:
  ParallelLoop(const Cut& cut, LoopBody body, void* context) noexcept
      : Job(cut.pieces()), cut_(cut), body_(body), context_(context) {}

  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  // Lets no exception out.
  void work(int32_t thread, std::atomic<int64_t>& taken) noexcept override {
    if (thread == 0) return run_from(0, thread, taken);
    // Without memory for what it needs to make calls, a thread leaves the work to others.
    if (detail::t_thread == nullptr && detail::try_register_thread() == nullptr) return;
    const int64_t piece = take(thread, taken);
    if (piece >= pieces) return;
    const CallerContext::Applied context(context_of_caller_);
    run_from(piece, thread, taken);
  }

 private:
  void run_from(int64_t piece, int32_t thread, std::atomic<int64_t>& taken) noexcept {
    for (; piece < pieces && !failed(); piece = take(thread, taken)) {
      const base::FloatState restored;  // the thread will run pieces of others
      try {
        cut_.run(piece, [&](int64_t begin, int64_t end) { body_(context_, begin, end); });
      } catch (...) {
        failed_.store(true, std::memory_order_relaxed);
      }
    }
  }

  const Cut cut_;
  const LoopBody body_;
  void* const context_;
  const CallerContext context_of_caller_ = CallerContext::of_this_thread();
  std::atomic<bool> failed_{false};
};

// How long a thread's processors are taken to be the same: asking takes as long as a small loop.
constexpr std::chrono::milliseconds kAskAgain(10);

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
  ParallelLoop loop(Cut(count, most, threads), body, context);
  try {
    WorkerPool::get().run(loop, static_cast<int32_t>(std::min<int64_t>(threads, loop.pieces) - 1));
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
  static thread_local constinit int32_t cpus = 0;
  static thread_local constinit std::chrono::steady_clock::time_point asked{};
  if (const auto now = std::chrono::steady_clock::now(); cpus == 0 || now - asked > kAskAgain) {
    cpu_set_t set;
    cpus = sched_getaffinity(0, sizeof set, &set) == 0
               ? CPU_COUNT(&set)
               : static_cast<int32_t>(std::thread::hardware_concurrency());
    cpus = std::max(cpus, 1), asked = now;
  }
  return limit > 0 ? std::min(limit, cpus) : cpus;
}

}  // namespace yard::runtime

void yard::Runtime::limit_threads(int32_t most) noexcept {
  runtime::g_thread_limit.store(std::max(most, 0), std::memory_order_relaxed);
}
