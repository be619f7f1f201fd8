// SPDX-License-Identifier: Apache-2.0
// The reclaiming side: the barrier in all threads, the scan, the deferred frees.
#include "base/reclaimer.h"

#include <cxxabi.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <yard/detail/memo.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace yard::base {
namespace {

// Of the calls that a forked child has inherited; null in any other process. Written by the fork handler alone.
constinit std::shared_ptr<const std::atomic<bool>> g_inherited;

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

void register_membarrier() noexcept {
  const bool works = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  if (!works) set_reader_fences(true);
}

void barrier_in_all_threads() noexcept {
#if !defined(YARD_UNDER_TSAN)
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Also where readers fence: one may have read before they did that it need not.
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0 || reader_fences()) return;
  // No thread has registered yet, which readers do before they first read; or the process is no longer allowed to.
  register_membarrier();
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

Reclaimer& reclaimer() noexcept {
  static constinit std::once_flag once;
  static constinit Reclaimer* made =
      nullptr;  // never destroyed, because calls may come until the process ends
  std::call_once(once, [] { made = new Reclaimer; });
  return *made;
}

void restart_reclaimer() noexcept {
  register_membarrier();
  g_inherited = when_calls_end();
}

std::shared_ptr<const std::atomic<bool>> when_calls_end() {
  using Flag = std::shared_ptr<std::atomic<bool>>;
  const auto flag = std::make_shared<std::atomic<bool>>(false);
  barrier_in_all_threads();
  std::vector<const void*> held;
  for_each_hazard([&](const void* p) { held.push_back(p); });
  if (held.empty()) {
    flag->store(true, std::memory_order_relaxed);
    return flag;
  }
  const auto end = [](void* p) {
    const std::unique_ptr<Flag> ended(static_cast<Flag*>(p));
    (*ended)->store(true, std::memory_order_release);
  };
  reclaimer().retire(new Flag(flag), end, std::move(held));
  return flag;
}

bool inherited_calls_ended() noexcept {
  if (g_inherited == nullptr || g_inherited->load(std::memory_order_acquire)) return true;
  reclaimer().collect();
  return g_inherited->load(std::memory_order_acquire);
}

Reclaimer::~Reclaimer() {
  while (retired_ != nullptr) pop(retired_);  // not by recursion
}

void Reclaimer::retire(std::unique_ptr<Retired> made) noexcept {
  const std::lock_guard lock(mutex_);
  push(retired_, std::move(made));
  ++count_;
}

void Reclaimer::retire(void* object, void (*free)(void*), std::vector<const void*> held_by) {
  retire(std::make_unique<Retired>(Retired{object, free, std::move(held_by)}));
}

void Reclaimer::requeue(List from) noexcept {
  while (from != nullptr) retire(pop(from));
}

size_t Reclaimer::pending() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

size_t Reclaimer::collect() noexcept {
  for (;;) {
    List batch;
    {
      const std::lock_guard lock(mutex_);
      batch.swap(retired_);
      count_ = 0;
    }
    if (batch == nullptr) return 0;
    barrier_in_all_threads();
    std::vector<const void*> held;
    try {
      for_each_hazard([&](const void* p) { held.push_back(p); });
    } catch (const std::bad_alloc&) {
      requeue(std::move(batch));
      return pending();
    }
    std::sort(held.begin(), held.end());
    const auto in_use = [&](const Retired& r) {
      return std::any_of(r.held_by.begin(), r.held_by.end(), [&](const void* p) {
        return std::binary_search(held.begin(), held.end(), p);
      });
    };
    // The list has the latest first; this one, and so what is freed, the oldest.
    List garbage, used;
    size_t left = 0;
    while (batch != nullptr) {
      List item = pop(batch);
      const bool stays = in_use(*item);
      left += stays;
      push(stays ? used : garbage, std::move(item));
    }
    requeue(std::move(used));
    if (garbage == nullptr) return left;
    while (garbage != nullptr) {
      const List item = pop(garbage);
      item->free(item->object);
    }
  }
}

}  // namespace yard::base

namespace yard::detail {
thread_local constinit ThreadHead* t_thread = nullptr;
constinit CallMemos kNoMemos;
}  // namespace yard::detail

namespace yard::base {

using detail::t_thread;

namespace {

std::atomic<bool> g_reader_fences{false};

std::atomic<ThreadRecord*> g_records{nullptr};
std::atomic<void (*)(void*)> g_exit_hooks[kThreadLocals];

// What a thread was using and had stored; not what its `locals` point to.
void forget_use(ThreadRecord& r, std::memory_order order) noexcept {
  r.counters = nullptr, r.memos = &detail::kNoMemos;
  r.scope = 0, r.scope_state = nullptr;
  r.functions = nullptr;
  r.nesting.refusing = false, r.nesting.refused_at = 0;
  for (HazardSlot& s : r.slots) s.store(nullptr, order);
  for (auto* b = r.deeper.load(std::memory_order_relaxed); b != nullptr;
       b = b->next.load(std::memory_order_relaxed))
    for (HazardSlot& s : b->slots) s.store(nullptr, order);
  r.depth = 0;
}

// A thread ends. A pthread key rather than a thread_local destructor: keys run after those, so a call
// made from such a destructor still finds its record, and a later one registers again.
void on_thread_exit(void* record) {
  auto* r = static_cast<ThreadRecord*>(record);
  t_thread = nullptr;
  r->counters = nullptr, r->memos = &detail::kNoMemos;
  for (int i = 0; i < kThreadLocals; ++i) {
    auto hook = g_exit_hooks[i].load(std::memory_order_acquire);
    if (hook != nullptr && r->locals[i] != nullptr) hook(r->locals[i]);
    r->locals[i] = nullptr;
  }
  forget_use(*r, std::memory_order_release);  // it may have ended inside a call
  r->in_use.store(false, std::memory_order_release);
}

constinit std::once_flag g_once;
pthread_key_t g_exit_key;

void prepare_for_threads() {
  // Before the first read of any thread: it must know by then whether to fence.
  register_membarrier();
  if (pthread_key_create(&g_exit_key, on_thread_exit) != 0) std::abort();  // no keys left
}

ThreadRecord* take_free_record() noexcept {
  for (ThreadRecord* r = first_record(); r != nullptr; r = r->next) {
    bool expected = false;
    if (!r->in_use.load(std::memory_order_relaxed) &&
        r->in_use.compare_exchange_strong(expected, true, std::memory_order_acquire))
      return r;
  }
  return nullptr;
}

}  // namespace

ThreadRecord* first_record() noexcept { return g_records.load(std::memory_order_acquire); }

void set_thread_exit_hook(int local, void (*hook)(void*)) noexcept {
  g_exit_hooks[local].store(hook, std::memory_order_release);
}

void set_reader_fences(bool on) noexcept {
  // The flag first: a thread that registers meanwhile reads it after it is on the list.
  g_reader_fences.store(on, std::memory_order_seq_cst);
  for (ThreadRecord* r = first_record(); r != nullptr; r = r->next)
    r->unfenced.store(on ? 0 : detail::ThreadHead::kInlineSlots, std::memory_order_seq_cst);
}

bool reader_fences() noexcept { return g_reader_fences.load(std::memory_order_seq_cst); }

// Puts a record into use for the calling thread. Null: there is no memory.
detail::ThreadHead* take_record() {
  std::call_once(g_once, prepare_for_threads);
  ThreadRecord* r = take_free_record();
  if (r == nullptr) {
    r = new ThreadRecord;
    r->next = g_records.load(std::memory_order_relaxed);
    while (!g_records.compare_exchange_weak(r->next, r, std::memory_order_seq_cst)) {
    }
  }
  // Again if it changed meanwhile: set_reader_fences() may have been here between load and store.
  bool fences;
  do {
    fences = reader_fences();
    r->unfenced.store(fences ? 0 : detail::ThreadHead::kInlineSlots, std::memory_order_seq_cst);
  } while (fences != reader_fences());
  if (pthread_setspecific(g_exit_key, r) != 0) {
    r->in_use.store(false, std::memory_order_release);
    return nullptr;
  }
  return t_thread = r;
}

void abandon_other_threads() noexcept {
  for (ThreadRecord* r = first_record(); r != nullptr; r = r->next) {
    if (r == t_thread || !r->in_use.load(std::memory_order_relaxed)) continue;
    forget_use(*r, std::memory_order_relaxed);
    // What the thread had stored may be half-written: it is left behind, not freed.
    for (void*& local : r->locals) local = nullptr;
    r->in_use.store(false, std::memory_order_relaxed);
  }
}

}  // namespace yard::base

namespace yard::detail {

ThreadHead* try_register_thread() noexcept {
  try {
    return base::take_record();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ThreadHead& register_thread() {
  ThreadHead* const thread = try_register_thread();
  if (thread == nullptr) throw std::bad_alloc();
  return *thread;
}

namespace {

// The block of a slot that is not inline; `at` becomes its place there.
base::ThreadRecord::Block& deep_block(ThreadHead& thread, uint32_t& at) {
  using Block = base::ThreadRecord::Block;
  at -= ThreadHead::kInlineSlots;
  std::atomic<Block*>* link = &static_cast<base::ThreadRecord&>(thread).deeper;
  for (;;) {
    Block* b = link->load(std::memory_order_relaxed);
    if (b == nullptr) {
      b = new Block;
      link->store(b, std::memory_order_release);
    }
    if (at < Block::kSlots) return *b;
    at -= Block::kSlots;
    link = &b->next;
  }
}

}  // namespace

HazardSlot& ThreadHead::deep_slot(uint32_t at) noexcept {
  if (at == kInlineSlots) static_cast<base::ThreadRecord*>(this)->nesting.refusing = false;
  return deep_block(*this, at).slots[at];
}

// (Catching abi::__forced_unwind by reference would do, but binds a reference to nothing.)
bool thread_is_unwinding() noexcept { return abi::__cxa_current_exception_type() == nullptr; }

}  // namespace yard::detail

namespace yard::base {

char* ThreadRecord::deep_message(uint32_t at) noexcept {
  Block& block = detail::deep_block(*this, at);
  return block.errors[at];
}

bool ThreadRecord::reserve_slot() noexcept {
  try {
    uint32_t at = depth;
    if (at >= kInlineSlots) detail::deep_block(*this, at);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

[[gnu::noinline]] bool ThreadRecord::failed_by_refusal(bool guarded) noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  Nesting& n = nesting;
  const bool matches = n.refused_at == depth + 1 && (guarded || here > n.refused_from);
  n.refused_from = here;
  n.refused_at = !matches ? 0 : !guarded ? depth + 1 : depth > 1 ? depth : 0;
  return matches;
}

}  // namespace yard::base
