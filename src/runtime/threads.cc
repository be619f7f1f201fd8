// SPDX-License-Identifier: Apache-2.0
// Cutting loops into pieces, and the two engines that run them.
#include "runtime/host.h"

#include <sched.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>

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

#if defined(YARD_HAVE_TBB)
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

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

class ParallelLoop {
 public:
  ParallelLoop(int64_t count, int64_t pieces, LoopBody body, void* context) noexcept
      : count_(count), pieces_(pieces), body_(body), context_(context) {}

  int64_t pieces() const noexcept { return pieces_; }
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  // Runs one piece on this thread, unless an earlier one has failed. Lets no exception out.
  void run(int64_t piece) noexcept {
    if (failed()) return;
    std::optional<CallerContext::Applied> context;
    if (std::this_thread::get_id() != caller_) context.emplace(context_of_caller_);
    const base::FloatState restored;  // the thread will run pieces of others
    try {
      body_(context_, edge(piece), edge(piece + 1));
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
    }
  }

 private:
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
};

namespace {

// How many pieces a thread gets on average: few enough to cost nothing, enough to even out.
constexpr int64_t kPiecesPerThread = 4;

int32_t allowed_cpus() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(static_cast<int32_t>(std::thread::hardware_concurrency()), 1);
}

int32_t run_here(int64_t count, LoopBody body, void* context) {
  try {
    body(context, 0, count);
    return YARD_OK;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return YARD_FAULT;
  }
}

// Inside a loop of run_on_new_threads(): nested ones stay on their thread.
thread_local constinit bool t_in_loop = false;

#if defined(YARD_HAVE_TBB)
constexpr LoopEngine kEngine = run_on_tbb;

// The process that oneTBB's pool belongs to, and whether it may be used; 0: no process has touched it. Set before oneTBB is
// touched, since in a child of fork() the pool has no threads, and perhaps a lock that is held for ever.
constinit std::atomic<uint64_t> g_pool{0};
constexpr uint64_t kUsable = uint64_t{1} << 32;

// Whether oneTBB's pool belongs to this process and has all its threads: one that cannot start another ends the process. The
// first caller finds out; others go on without the pool until then.
bool take_pool() noexcept {
  const uint64_t here = base::this_process();
  uint64_t pool = g_pool.load(std::memory_order_relaxed);
  if (pool == 0 && g_pool.compare_exchange_strong(pool, here, std::memory_order_relaxed)) {
    const size_t workers =
        tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism) - 1;
    if (!base::threads_available(workers)) return false;
    g_pool.store(here | kUsable, std::memory_order_relaxed);
    return true;
  }
  return pool == (here | kUsable);
}
#else
constexpr LoopEngine kEngine = run_on_new_threads;
#endif

}  // namespace

void run_on_new_threads(ParallelLoop& loop, int32_t threads) {
  std::atomic<int64_t> next{0};
  const auto work = [&loop, &next] {
    t_in_loop = true;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < loop.pieces();)
      loop.run(i);
    t_in_loop = false;
  };
  if (t_in_loop) {
    for (int64_t i = 0; i < loop.pieces(); ++i) loop.run(i);
    return;
  }
  const uint64_t process = base::forks();
  auto helpers = std::make_unique<std::vector<std::thread>>();
  try {
    helpers->reserve(static_cast<size_t>(threads - 1));
    for (int32_t i = 1; i < threads; ++i) helpers->emplace_back(work);
  } catch (...) {
    // No thread or memory left: those that have started do the work.
  }
  work();
  if (base::forks() != process) {
    // A child that one of the pieces forked: it has no helpers, and nothing to join.
    [[maybe_unused]] auto* left_behind = helpers.release();
    return;
  }
  for (std::thread& t : *helpers) t.join();
}

#if defined(YARD_HAVE_TBB)
void run_on_tbb(ParallelLoop& loop, int32_t threads) {
  if (!take_pool()) return run_on_new_threads(loop, threads);
  // Isolated twice: a thread that waits for the loop takes on nothing else, and a caller whose own
  // tasks were cancelled still gets all of it.
  tbb::task_group_context context(tbb::task_group_context::isolated);
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, loop.pieces(), 1),
        [&](const tbb::blocked_range<int64_t>& pieces) {
          for (int64_t i = pieces.begin(); i != pieces.end(); ++i) loop.run(i);
        },
        tbb::simple_partitioner(), context);
  });
}
#endif

int32_t parallel_for_on(LoopEngine engine, int32_t threads, int64_t count, int64_t grain,
                        LoopBody body, void* context) {
  if (count <= 0) return YARD_OK;
  const int64_t most = count / std::max<int64_t>(grain, 1);
  if (most <= 1 || threads <= 1) return run_here(count, body, context);
  // A cancelled thread cannot leave a loop that others work on.
  const base::CancellationOff cancellation_off;
  const uint64_t process = base::forks();
  ParallelLoop loop(count, std::min(most, threads * kPiecesPerThread), body, context);
  try {
    engine(loop, static_cast<int32_t>(std::min<int64_t>(threads, loop.pieces())));
  } catch (...) {
    return YARD_FAULT;  // the engine itself: which pieces have run is unknown
  }
  // In a child that a piece has forked, pieces of threads that are not there are missing.
  return loop.failed() || base::forks() != process ? YARD_FAULT : YARD_OK;
}

int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context) {
  const bool one_piece = count / 2 < std::max<int64_t>(grain, 1);
  return parallel_for_on(kEngine, one_piece ? 1 : concurrency(), count, grain, body, context);
}

int32_t concurrency() noexcept {
#if defined(YARD_HAVE_TBB)
  if (take_pool())
    return std::min(allowed_cpus(), std::max(tbb::this_task_arena::max_concurrency(), 1));
#endif
  return t_in_loop ? 1 : allowed_cpus();
}

}  // namespace yard::runtime
