// SPDX-License-Identifier: Apache-2.0
// Storage of counters, and what happens to them when threads end.
#include "base/counters.h"

#include <memory>
#include <new>
#include <vector>

#include "base/tasks.h"

namespace yard::base {
namespace {

using Value = detail::ThreadHead::Value;

struct alignas(64) Chunk {
  Value values[kPerChunk];
};

// A thread's counters, in chunks created on first use; a chunk's address never changes.
struct ThreadCounters {
  std::atomic<Value*> chunks[kMaxChunks]{};

  uint64_t value(uint32_t id) const noexcept {
    const Value* c = chunks[id / kPerChunk].load(std::memory_order_acquire);
    return c != nullptr ? c[id % kPerChunk].load(std::memory_order_relaxed) : 0;
  }
};

void end_thread_counters(void* value);

// The counters of running threads and the sums of ended ones.
struct CounterTable {
  CounterTable() { set_thread_exit_hook(kCountersLocal, end_thread_counters); }
  Mutex mutex{Rank::kCounters};
  std::vector<ThreadCounters*> threads;
  std::vector<uint64_t> ended;  // by id
  std::vector<uint32_t> free_ids;
  uint32_t next_id = 1;  // 0 is kNoCounter

  uint64_t sum(uint32_t id) const {
    uint64_t total = id < ended.size() ? ended[id] : 0;
    for (const ThreadCounters* t : threads) total += t->value(id);
    return total;
  }
};

CounterTable& table() { return process_wide<CounterTable>(); }

void end_thread_counters(void* value) {
  const std::unique_ptr<ThreadCounters> mine(static_cast<ThreadCounters*>(value));
  CounterTable& t = table();
  {
    const std::lock_guard lock(t.mutex);
    std::erase(t.threads, mine.get());
    if (t.ended.size() < t.next_id) t.ended.resize(t.next_id);
    for (uint32_t id = 0; id < t.next_id; ++id) t.ended[id] += mine->value(id);
  }
  for (auto& c : mine->chunks) delete reinterpret_cast<Chunk*>(c.load(std::memory_order_relaxed));
}

// Creates the chunk of a counter.
void make_room(ThreadRecord& thread, uint32_t id) {
  auto* mine = static_cast<ThreadCounters*>(thread.locals[kCountersLocal]);
  if (mine == nullptr) {
    auto made = std::make_unique<ThreadCounters>();
    CounterTable& t = table();
    const std::lock_guard lock(t.mutex);
    t.threads.push_back(made.get());
    thread.locals[kCountersLocal] = mine = made.release();
    thread.counters = mine->chunks;
  }
  auto& chunk = mine->chunks[id / kPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store((new Chunk{})->values, std::memory_order_release);
}

}  // namespace

Counter::Counter() : id_(kNoCounter), base_(0) {
  CounterTable& t = table();
  const std::lock_guard lock(t.mutex);
  if (t.free_ids.empty() && t.next_id == kPerChunk * kMaxChunks) return;
  if (t.free_ids.empty()) t.free_ids.push_back(t.next_id++);
  id_ = t.free_ids.back();
  t.free_ids.pop_back();
  base_ = t.sum(id_);
}

Counter::~Counter() {
  if (id_ == kNoCounter) return;
  CounterTable& t = table();
  const std::lock_guard lock(t.mutex);
  try {
    t.free_ids.push_back(id_);
  } catch (const std::bad_alloc&) {  // the id is not used again
  }
}

uint64_t Counter::total() const {
  if (id_ == kNoCounter) return 0;
  CounterTable& t = table();
  const std::lock_guard lock(t.mutex);
  return t.sum(id_) - (process_ == forks() ? base_ : 0);
}

void restart_counters() noexcept {
  CounterTable& t = table();
  // What other threads have counted is not freed: they may have been changing it.
  t.threads.clear(), t.ended.clear();
  if (detail::t_thread == nullptr) return;
  this_thread().locals[kCountersLocal] = nullptr;
  detail::t_thread->counters = nullptr;
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
