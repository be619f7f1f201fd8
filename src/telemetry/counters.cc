// SPDX-License-Identifier: Apache-2.0
// Where counters live, and what becomes of them when threads end.
#include "telemetry/counters.h"

#include <mutex>
#include <vector>

#include "base/first_use.h"

namespace yard::telemetry {
namespace {

// The living threads' counters, and the sums the ended ones left. Behind a pointer so that a child of
// fork can start with a new one whose lock nobody holds.
struct CounterTable {
  std::mutex mutex;
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

std::atomic<CounterTable*> g_book{nullptr};

void on_thread_exit(void* value);

CounterTable& table() {
  CounterTable* b = g_book.load(std::memory_order_acquire);
  if (b == nullptr) {
    auto* made = new CounterTable;
    if (g_book.compare_exchange_strong(b, made, std::memory_order_acq_rel)) {
      base::set_thread_exit_hook(kThreadLocal, on_thread_exit);
      return *made;
    }
    delete made;
  }
  return *b;
}

void on_thread_exit(void* value) {
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
  book_ = &b;
}

Counter::~Counter() {
  if (id_ == kNoCounter) return;
  CounterTable& b = table();
  std::lock_guard lock(b.mutex);
  // A counter made before a fork has a number the child's new table knows nothing of.
  if (id_ < b.next_id) b.free_ids.push_back(id_);
}

uint64_t Counter::total() const {
  if (id_ == kNoCounter) return 0;
  CounterTable& b = table();
  std::lock_guard lock(b.mutex);
  return b.sum(id_) - (book_ == &b ? base_ : 0);
}

void abandon_counters() noexcept {
  const CounterTable* old = g_book.load(std::memory_order_acquire);
  if (old == nullptr) return;
  // next_id is read without the lock: it only grows, and a torn read cannot happen on our machines.
  auto* made = new CounterTable;
  made->next_id = old->next_id;
  g_book.store(made, std::memory_order_release);
  base::set_thread_exit_hook(kThreadLocal, on_thread_exit);
  if (detail::t_thread != nullptr) {
    base::this_thread().locals[kThreadLocal] = nullptr;
    detail::t_thread->counters = nullptr;
  }
}

// Makes the missing chunk.
void make_room(base::ThreadRecord& thread, uint32_t id) {
  auto* mine = static_cast<ThreadCounters*>(thread.locals[kThreadLocal]);
  if (mine == nullptr) {
    mine = new ThreadCounters;
    CounterTable& b = table();
    std::lock_guard lock(b.mutex);
    b.threads.push_back(mine);
    thread.locals[kThreadLocal] = mine;
    thread.counters = mine->chunks;
  }
  auto& chunk = mine->chunks[id / kPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store((new Chunk{})->values, std::memory_order_release);
}

}  // namespace yard::telemetry

namespace yard::detail {

ThreadHead::Value& make_counter(ThreadHead& thread, uint32_t id) noexcept {
  telemetry::make_room(static_cast<base::ThreadRecord&>(thread), id);
  // The first call in a forked child comes here.
  base::first_use();
  return counter(thread, id);
}

}  // namespace yard::detail
