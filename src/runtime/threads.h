// SPDX-License-Identifier: Apache-2.0
// The threads behind the host's parallel_for: oneTBB's where the build has it, else threads started for
// the length of one call. Kernels own none.
//
// A loop is cut into pieces of at least `grain`, a few for each thread, so that a thread that starts late has less to do.
// A loop of one piece runs on the caller. Nothing but oneTBB's pool outlives a call; a forked child whose parent has used
// the pool starts threads for each call instead.
#pragma once

#include <cstdint>

namespace yard::runtime {

using LoopBody = void (*)(void* context, int64_t begin, int64_t end);

// Runs body over [0, count), never with an empty range; returns when all of it is done. An exception of
// the body stops further pieces and becomes YARD_FAULT. The caller's policy scope holds in every piece.
// Any thread may call it, also inside a piece of another loop: while it waits it takes on no work but
// its own. Allocates only when more than one thread takes part.
int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context);

// How many threads a loop of this caller may use: those the process may run on, and no more than the
// oneTBB arena the caller is in.
int32_t concurrency() noexcept;

// A loop that is being run.
class ParallelLoop;

// Runs every piece of the loop, on up to `threads` threads of which the caller is one.
using LoopEngine = void (*)(ParallelLoop& loop, int32_t threads);
void run_on_new_threads(ParallelLoop& loop, int32_t threads);
#if defined(YARD_HAVE_TBB)
void run_on_tbb(ParallelLoop& loop, int32_t threads);
#endif

// parallel_for on a given engine and number of threads; for tests.
int32_t parallel_for_on(LoopEngine engine, int32_t threads, int64_t count, int64_t grain,
                        LoopBody body, void* context);

}  // namespace yard::runtime
