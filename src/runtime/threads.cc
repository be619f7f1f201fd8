// SPDX-License-Identifier: Apache-2.0
// Cutting loops into pieces, and the two ways to find threads for them.
#include "runtime/threads.h"

#include <pthread.h>
#include <sched.h>
#include <yard/plugin.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/this_process.h"
#include "runtime/loop.h"

#if defined(YARD_HAVE_TBB)
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace yard::runtime {
namespace {

// How many pieces a thread gets on average: few enough to cost nothing, enough to even out.
constexpr int64_t kPiecesPerThread = 4;

int32_t allowed_cpus() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(static_cast<int32_t>(std::thread::hardware_concurrency()), 1);
}

// A cancelled thread cannot leave a loop that others are working on; it is cancelled afterwards.
class NotNow {
 public:
  NotNow() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotNow() { pthread_setcancelstate(before_, nullptr); }
  NotNow(const NotNow&) = delete;
  NotNow& operator=(const NotNow&) = delete;

 private:
  int before_ = 0;
};

int32_t run_here(int64_t count, LoopBody body, void* context) {
  try {
    body(context, 0, count);
    return YARD_OK;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return YARD_FAULT;
  }
}

// Inside a loop on threads of its own; a nested one stays on its thread.
thread_local constinit bool t_in_loop = false;

#if defined(YARD_HAVE_TBB)
constexpr LoopEngine kEngine = run_on_tbb;

// Whether oneTBB's pool is that of this process. A child of one that has used it finds no thread in it, and perhaps a
// lock that nobody is left to release.
bool has_pool() noexcept {
  static constinit std::atomic<uint32_t> owner{0};
  const uint32_t here = base::this_process();
  uint32_t of = owner.load(std::memory_order_relaxed);
  if (of == 0 && owner.compare_exchange_strong(of, here, std::memory_order_relaxed)) return true;
  return of == here;
}
#else
constexpr LoopEngine kEngine = run_on_new_threads;
#endif

}  // namespace

void run_on_new_threads(Loop& loop, int32_t threads) {
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
    // No more threads or memory to be had: those that are there do it.
  }
  work();
  if (base::forks() != process) {
    // A child that was born in one of the pieces: it has no helpers, and nothing to join.
    [[maybe_unused]] auto* left_behind = helpers.release();
    return;
  }
  for (std::thread& t : *helpers) t.join();
}

#if defined(YARD_HAVE_TBB)
void run_on_tbb(Loop& loop, int32_t threads) {
  if (!has_pool()) return run_on_new_threads(loop, threads);
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
  const NotNow not_now;
  const uint64_t process = base::forks();
  Loop loop(count, std::min(most, threads * kPiecesPerThread), body, context);
  try {
    engine(loop, static_cast<int32_t>(std::min<int64_t>(threads, loop.pieces())));
  } catch (...) {
    return YARD_FAULT;  // the engine itself: nobody knows which pieces have run
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
  if (has_pool())
    return std::min(allowed_cpus(), std::max(tbb::this_task_arena::max_concurrency(), 1));
#endif
  return t_in_loop ? 1 : allowed_cpus();
}

}  // namespace yard::runtime
