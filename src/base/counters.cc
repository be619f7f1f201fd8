// SPDX-License-Identifier: Apache-2.0
// Storage of counters, and what happens to them when threads end.
#include "base/counters.h"

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/tasks.h"

namespace yard::base {
namespace {

// The counters of running threads and the sums of ended ones.
struct CounterTable {
  Mutex mutex{Rank::kCounters};
  std::vector<ThreadCounters*> threads;
  std::vector<uint64_t> ended;  // by id
  std::vector<uint32_t> free_ids;
  uint32_t next_id = 1;  // 0 is kNoCounter

  uint64_t sum(uint32_t id) const {
    uint64_t total = id < ended.size() ? ended[id] : 0;
    for (const ThreadCounters* t : threads)
      if (const auto* c = t->chunks[id / kPerChunk].load(std::memory_order_acquire))
        total += c[id % kPerChunk].load(std::memory_order_relaxed);
    return total;
  }
};

void end_thread_counters(void* value);

CounterTable& table() {
  static constinit std::once_flag once;
  static constinit CounterTable* made = nullptr;  // never destroyed: threads may end after statics
  std::call_once(once, [] {
    made = new CounterTable;
    set_thread_exit_hook(kCountersLocal, end_thread_counters);
  });
  return *made;
}

void end_thread_counters(void* value) {
  auto* mine = static_cast<ThreadCounters*>(value);
  CounterTable& b = table();
  {
    std::lock_guard lock(b.mutex);
    std::erase(b.threads, mine);
    if (b.ended.size() < b.next_id) b.ended.resize(b.next_id);
    for (uint32_t id = 0; id < b.next_id; ++id)
      if (const auto* c = mine->chunks[id / kPerChunk].load(std::memory_order_relaxed))
        b.ended[id] += c[id % kPerChunk].load(std::memory_order_relaxed);
  }
  for (auto& c : mine->chunks) delete reinterpret_cast<Chunk*>(c.load(std::memory_order_relaxed));
  delete mine;
}

}  // namespace

Counter::Counter() {
  CounterTable& b = table();
  std::lock_guard lock(b.mutex);
  if (!b.free_ids.empty()) {
    id_ = b.free_ids.back();
    b.free_ids.pop_back();
  } else if (b.next_id < kPerChunk * kMaxChunks) {
    id_ = b.next_id++;
  } else {
    id_ = kNoCounter;
  }
  base_ = id_ == kNoCounter ? 0 : b.sum(id_);
}

Counter::~Counter() {
  if (id_ == kNoCounter) return;
  CounterTable& b = table();
  std::lock_guard lock(b.mutex);
  try {
    b.free_ids.push_back(id_);
  } catch (const std::bad_alloc&) {  // it is not used again
  }
}

uint64_t Counter::total() const {
  if (id_ == kNoCounter) return 0;
  CounterTable& b = table();
  std::lock_guard lock(b.mutex);
  return b.sum(id_) - (process_ == forks() ? base_ : 0);
}

void restart_counters() noexcept {
  CounterTable& b = table();
  // What other threads have counted is not freed: they may have been changing it.
  b.threads.clear(), b.ended.clear();
  if (detail::t_thread == nullptr) return;
  this_thread().locals[kCountersLocal] = nullptr;
  detail::t_thread->counters = nullptr;
}

// Creates the chunk of a counter.
void make_room(base::ThreadRecord& thread, uint32_t id) {
  auto* mine = static_cast<ThreadCounters*>(thread.locals[kCountersLocal]);
  if (mine == nullptr) {
    auto made = std::make_unique<ThreadCounters>();
    CounterTable& b = table();
    std::lock_guard lock(b.mutex);
    b.threads.push_back(made.get());
    mine = made.release();
    thread.locals[kCountersLocal] = mine;
    thread.counters = mine->chunks;
  }
  auto& chunk = mine->chunks[id / kPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store((new Chunk{})->values, std::memory_order_release);
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
