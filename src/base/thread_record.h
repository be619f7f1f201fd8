// SPDX-License-Identifier: Apache-2.0
// One record per thread: the hazard slots that say what the thread is using, and a few pointers that
// upper layers keep for it.
//
// A record is found through one thread_local pointer, is written by its thread alone, and is read by
// whoever wants to free something (reclaimer.h). Records are never freed: a thread that ends hands its
// record on to the next one that starts. The list of records only grows at its head, so it can be
// walked without a lock, also in a forked child.
#pragma once

#include <yard/detail/guard.h>

#include <atomic>
#include <cstdint>

namespace yard::base {

using detail::Guard;
using detail::HazardSlot;
using detail::kFollow;
using detail::kReread;

// Pointers that a layer keeps with the thread; each layer names its own index.
inline constexpr int kThreadLocals = 5;

struct ThreadRecord : detail::ThreadHead {
  void* locals[kThreadLocals] = {};  // of the owner
  // Slots beyond kInlineSlots: a kernel may call ops that call ops. Kept once made.
  struct Block {
    static constexpr uint32_t kSlots = 32;
    HazardSlot slots[kSlots]{};
    char errors[kSlots][kErrorBytes];
    std::atomic<Block*> next{nullptr};
  };
  std::atomic<Block*> deeper{nullptr};
  std::atomic<bool> in_use{true};
  ThreadRecord* next = nullptr;
};

// This thread's record; registers the thread on first use.
inline ThreadRecord& this_thread() noexcept {
  detail::ThreadHead* t = detail::t_thread;
  return static_cast<ThreadRecord&>(t != nullptr ? *t : detail::register_thread());
}

// Whether this thread is inside a call: it must not wait for calls to end.
inline bool inside_call() noexcept {
  return detail::t_thread != nullptr && detail::t_thread->depth > 0;
}

// Called with a thread's record when the thread ends, before the record is handed on. At most one per
// index of `locals`; the hook frees what it put there.
void set_thread_exit_hook(int local, void (*hook)(void* value)) noexcept;

// Calls f(const void*) for everything some thread is using.
template <class F>
void for_each_hazard(const F& f);
// The newest record; for walking.
ThreadRecord* first_record() noexcept;

// Whether readers of all threads, those to come included, must fence.
void set_reader_fences(bool on) noexcept;
bool reader_fences() noexcept;

// In a forked child: the other threads are gone, what they used is not in use any more.
void abandon_other_threads() noexcept;

template <class F>
void for_each_hazard(const F& f) {
  for (ThreadRecord* r = first_record(); r != nullptr; r = r->next) {
    const auto look = [&](const HazardSlot& s) {
#if defined(YARD_UNDER_TSAN)
      const void* p = s.load(std::memory_order_seq_cst);
#else
      const void* p = s.load(std::memory_order_acquire);
#endif
      if (p != nullptr) f(p);
    };
    for (const HazardSlot& s : r->slots) look(s);
    for (auto* b = r->deeper.load(std::memory_order_acquire); b != nullptr;
         b = b->next.load(std::memory_order_acquire))
      for (const HazardSlot& s : b->slots) look(s);
  }
}

}  // namespace yard::base
