// SPDX-License-Identifier: Apache-2.0
// Counters that belong to the thread: counting writes no line another thread writes; whoever asks adds
// them up.
//
//   telemetry::Counter ran;              // somewhere that outlives its users
//   telemetry::count(thread, ran.id());  // on the hot path: three instructions and a store
//   uint64_t n = ran.total();
#pragma once

#include <yard/detail/counter.h>

#include <atomic>
#include <cstdint>

#include "base/thread_record.h"

namespace yard::telemetry {

inline constexpr int kThreadLocal = 0;  // our index in ThreadRecord::locals
using detail::count;
using detail::kPerChunk;
inline constexpr uint32_t kMaxChunks = 512;
// Counts for nobody: the number of counters beyond kPerChunk * kMaxChunks.
inline constexpr uint32_t kNoCounter = 0;

struct alignas(64) Chunk {
  detail::ThreadHead::Value values[kPerChunk];
};

// A thread's counters, in chunks made when first counted in; a chunk's address never changes.
struct ThreadCounters {
  std::atomic<detail::ThreadHead::Value*> chunks[kMaxChunks]{};
};

// One counter. Its number is handed on after it is destroyed, which must be after its last count().
class Counter {
 public:
  Counter();
  ~Counter();
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  uint32_t id() const noexcept { return id_; }
  // Sum over all threads, past and present, since this counter was made. Takes a lock; walks threads.
  uint64_t total() const;

 private:
  uint32_t id_;
  uint64_t base_;     // what earlier owners of the number left behind
  const void* book_;  // where that was; a forked child has another
};

// In a forked child: counters restart.
void abandon_counters() noexcept;

}  // namespace yard::telemetry
