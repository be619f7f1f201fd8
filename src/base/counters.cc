// SPDX-License-Identifier: Apache-2.0
// A thread's part of all counters is an array of chunks, which stays with the thread's record.
#include "base/counters.h"

#include <new>
#include <vector>

#include "base/tasks.h"

namespace yard::base {
namespace {

using Value = detail::ThreadHead::Value;

struct alignas(64) Chunk {
  Value values[kPerChunk];
};

struct Ids {
  Mutex mutex{Rank::kCounters};
  std::vector<uint32_t> free;
  uint32_t next = 1;  // 0 is kNoCounter
};

uint64_t sum(uint32_t id) noexcept {
  uint64_t total = 0;
  for (const ThreadRecord& r : thread_records())
    if (const auto* chunks = r.chunks.load(std::memory_order_acquire))
      if (const Value* c = chunks[id / kPerChunk].load(std::memory_order_acquire))
        total += c[id % kPerChunk].load(std::memory_order_relaxed);
  return total;
}

void make_room(ThreadRecord& thread, uint32_t id) {
  auto* mine = thread.chunks.load(std::memory_order_relaxed);
  if (mine == nullptr) {
    mine = new std::atomic<Value*>[kMaxChunks] {};
    thread.chunks.store(mine, std::memory_order_release);
  }
  thread.counters = mine;
  auto& chunk = mine[id / kPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store((new Chunk{})->values, std::memory_order_release);
}

}  // namespace

Counter::Counter() : id_(kNoCounter), base_(0) {
  Ids& ids = process_wide<Ids>();
  const std::lock_guard lock(ids.mutex);
  if (ids.free.empty() && ids.next == kPerChunk * kMaxChunks) return;
  if (ids.free.empty()) ids.free.push_back(ids.next++);
  id_ = ids.free.back();
  ids.free.pop_back();
  base_ = sum(id_);
}

Counter::~Counter() {
  if (id_ == kNoCounter) return;
  Ids& ids = process_wide<Ids>();
  const std::lock_guard lock(ids.mutex);
  try {
    ids.free.push_back(id_);
  } catch (const std::bad_alloc&) {  // the id is not used again
  }
}

uint64_t Counter::total() const noexcept {
  return id_ == kNoCounter ? 0 : sum(id_) - (process_ == forks() ? base_ : 0);
}

void restart_counters() noexcept {
  // Do not free the chunks: a thread that the child does not have may have been making one.
  for (ThreadRecord& r : thread_records()) {
    r.chunks.store(nullptr, std::memory_order_relaxed);
    r.counters = nullptr;
  }
}

}  // namespace yard::base

namespace yard::detail {

ThreadHead::Value& make_counter(ThreadHead& thread, uint32_t id) noexcept {
  try {
    base::make_room(static_cast<base::ThreadRecord&>(thread), id);
  } catch (const std::bad_alloc&) {  // these calls are not counted
    static thread_local constinit ThreadHead::Value lost{};
    return lost;
  }
  base::run_due_at_call();  // the first call of a forked child comes here
  return counter(thread, id);
}

}  // namespace yard::detail
