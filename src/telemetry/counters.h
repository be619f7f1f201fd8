// SPDX-License-Identifier: Apache-2.0
// Counters that belong to the thread: counting writes no line another thread writes; whoever asks adds
// them up.
//
//   telemetry::Counter ran;              // somewhere that outlives its users
//   telemetry::count(thread, ran.id());  // on the hot path: three instructions and a store
//   uint64_t n = ran.total();
#pragma once

#include <atomic>
#include <cstdint>

#include "base/thread_record.h"

namespace yard::telemetry {

inline constexpr int kThreadLocal = 0;  // our index in ThreadRecord::locals
inline constexpr uint32_t kPerChunk = 128;
inline constexpr uint32_t kMaxChunks = 512;
inline constexpr uint32_t kNoCounter = UINT32_MAX;

struct alignas(64) Chunk {
  std::atomic<uint64_t> values[kPerChunk];
};

// A thread's counters, in chunks made when first counted in; a chunk's address never changes.
struct ThreadCounters {
  std::atomic<Chunk*> chunks[kMaxChunks]{};
};

// Makes the missing chunk, then counts.
void count_slow(base::ThreadRecord& thread, uint32_t id) noexcept;

inline void count(base::ThreadRecord& thread, uint32_t id) noexcept {
  const auto* mine = static_cast<const ThreadCounters*>(thread.locals[kThreadLocal]);
  if (mine != nullptr && id < kPerChunk * kMaxChunks) [[likely]] {
    if (Chunk* chunk = mine->chunks[id / kPerChunk].load(std::memory_order_relaxed)) [[likely]] {
      std::atomic<uint64_t>& v = chunk->values[id % kPerChunk];
      v.store(v.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
  }
  count_slow(thread, id);
}

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
  uint64_t base_;       // what earlier owners of the number left behind
  const void* book_;    // where that was; a child of fork has another
};

// In a child of fork: counters start anew.
void abandon_counters() noexcept;

}  // namespace yard::telemetry
