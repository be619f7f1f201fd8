// SPDX-License-Identifier: Apache-2.0
#include "base/thread_record.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <yard/bound.h>
#include <yard/detail/memo.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>

namespace yard::detail {
thread_local constinit ThreadHead* t_thread = nullptr;
thread_local constinit uintptr_t t_stack_limit = UINTPTR_MAX;
constinit CallMemos kNoMemos;
}  // namespace yard::detail

namespace yard::base {

using detail::t_thread;

namespace {

std::atomic<bool> g_reader_fences{false};
constinit AppendList<ThreadRecord> g_records;
std::atomic<void (*)(void*)> g_exit_hooks[kThreadLocals];

void forget_use(ThreadRecord& r, std::memory_order order) noexcept {
  r.counters = nullptr, r.memos = &detail::kNoMemos;
  r.scope = 0, r.scope_state = nullptr;
  r.functions = nullptr;
  r.nesting.refusing = false, r.nesting.refused_at = 0;
  r.for_each_slot([&](HazardSlot& s) { s.store(nullptr, order); });
  r.depth = 0;
}

// A pthread key calls this after the thread_local destructors. So a call that such a destructor
// makes still finds its record, and a later call registers again.
void on_thread_exit(void* record) {
  auto* r = static_cast<ThreadRecord*>(record);
  t_thread = nullptr;
  for (int i = 0; i < kThreadLocals; ++i) {
    auto hook = g_exit_hooks[i].load(std::memory_order_acquire);
    if (hook != nullptr && r->locals[i] != nullptr) hook(r->locals[i]);
    r->locals[i] = nullptr;
  }
  forget_use(*r, std::memory_order_release);  // the thread may have ended inside a call
  r->in_use.store(false, std::memory_order_release);
}

pthread_key_t g_exit_key;

ThreadRecord& free_record() {
  for (ThreadRecord& r : g_records)
    if (!r.in_use.load(std::memory_order_relaxed) &&
        !r.in_use.exchange(true, std::memory_order_acquire))
      return r;
  return g_records.append(std::make_unique<ThreadRecord>());
}

ThreadRecord& take_record() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    register_membarrier();  // a thread must know before its first read whether to fence
    if (pthread_key_create(&g_exit_key, on_thread_exit) != 0) std::abort();  // no keys left
  });
  ThreadRecord& r = free_record();
  // Repeat this if set_reader_fences() ran between the load and the store.
  bool fences;
  do {
    fences = reader_fences();
    r.unfenced.store(fences ? 0 : detail::ThreadHead::kInlineSlots, std::memory_order_seq_cst);
  } while (fences != reader_fences());
  if (pthread_setspecific(g_exit_key, &r) != 0) {
    r.in_use.store(false, std::memory_order_release);
    throw std::bad_alloc();
  }
  t_thread = &r;
  return r;
}

// Returns the block of a slot that is not inline, and sets `at` to the slot's place in the block.
ThreadRecord::Block& deep_block(ThreadRecord& thread, uint32_t& at) {
  using Block = ThreadRecord::Block;
  std::atomic<Block*>* link = &thread.deeper;
  for (at -= detail::ThreadHead::kInlineSlots;; at -= Block::kSlots) {
    if (link->load(std::memory_order_relaxed) == nullptr)
      link->store(new Block, std::memory_order_release);
    Block& b = *link->load(std::memory_order_relaxed);
    if (at < Block::kSlots) return b;
    link = &b.next;
  }
}

constexpr size_t kStackReserve = 256 << 10;
thread_local constinit uintptr_t t_stack_end = 0;

void find_stack_limit() noexcept {
  pthread_attr_t attributes;
  detail::t_stack_limit = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* end = nullptr;
  size_t size = 0, guard = 0;
  pthread_attr_getstack(&attributes, &end, &size);
  pthread_attr_getguardsize(&attributes, &guard);
  pthread_attr_destroy(&attributes);
  t_stack_end = reinterpret_cast<uintptr_t>(end);
  detail::t_stack_limit = t_stack_end + guard + std::min(kStackReserve, size / 4);
}

}  // namespace

const AppendList<ThreadRecord>& thread_records() noexcept { return g_records; }

void set_thread_exit_hook(int local, void (*hook)(void*)) noexcept {
  g_exit_hooks[local].store(hook, std::memory_order_release);
}

void set_reader_fences(bool on) noexcept {
  // Set the flag first, because a thread that registers meanwhile reads it after joining the list.
  g_reader_fences.store(on, std::memory_order_seq_cst);
  for (ThreadRecord& r : g_records)
    r.unfenced.store(on ? 0 : detail::ThreadHead::kInlineSlots, std::memory_order_seq_cst);
}

bool reader_fences() noexcept { return g_reader_fences.load(std::memory_order_seq_cst); }

void register_membarrier() noexcept {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0)
    set_reader_fences(true);
}

void abandon_other_threads() noexcept {
  for (ThreadRecord& r : g_records) {
    if (&r == t_thread || !r.in_use.load(std::memory_order_relaxed)) continue;
    forget_use(r, std::memory_order_relaxed);
    // A value may be half-written by its thread, so it is not freed.
    for (void*& local : r.locals) local = nullptr;
    r.in_use.store(false, std::memory_order_relaxed);
  }
}

char* ThreadRecord::deep_message(uint32_t at) noexcept {
  Block& block = deep_block(*this, at);  // changes `at`
  return block.errors[at];
}

bool ThreadRecord::reserve_slot() noexcept {
  try {
    uint32_t at = depth;
    if (at >= kInlineSlots) deep_block(*this, at);
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

bool stack_is_low() noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (detail::t_stack_limit == UINTPTR_MAX) find_stack_limit();
  return here < detail::t_stack_limit && here >= t_stack_end;
}

}  // namespace yard::base

namespace yard::detail {

ThreadHead* try_register_thread() noexcept {
  try {
    return &register_thread();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ThreadHead& register_thread() { return base::take_record(); }

HazardSlot& ThreadHead::deep_slot(uint32_t at) noexcept {
  auto& record = static_cast<base::ThreadRecord&>(*this);
  if (at == kInlineSlots) record.nesting.refusing = false;
  return base::deep_block(record, at).slots[at];
}

// The unwinding of a thread that ends is not a C++ exception. abi::__cxa_current_exception_type()
// would read memory before it, which is not null in a detached thread.
bool thread_is_unwinding() noexcept { return std::current_exception() == nullptr; }

}  // namespace yard::detail
