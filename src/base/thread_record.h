// SPDX-License-Identifier: Apache-2.0
// The data that the library keeps for each thread.
#pragma once

#include <yard/detail/guard.h>

#include <atomic>
#include <cstdint>

#include "base/append_list.h"

namespace yard::base {

using detail::Guard;
using detail::HazardSlot;
using detail::kFollow;
using detail::kReread;

inline constexpr int kThreadLocals = 5;

// Written by its thread, and read by Reclaimer::collect(). Records are never freed. A new thread
// takes the record of a thread that has ended.
struct ThreadRecord : detail::ThreadHead {
  void* locals[kThreadLocals] = {};  // each layer has its own index
  // Slots beyond kInlineSlots, for kernels that call ops that call ops.
  struct Block {
    static constexpr uint32_t kSlots = 32;
    HazardSlot slots[kSlots]{};
    char errors[kSlots][kErrorBytes];
    std::atomic<Block*> next{nullptr};
  };
  std::atomic<Block*> deeper{nullptr};
  std::atomic<std::atomic<Value*>*> chunks{nullptr};  // of counters (counters.cc)
  std::atomic<bool> in_use{true};
  ThreadRecord* next = nullptr;

  // Calls that nest too deeply. After one is refused, all nested calls are refused until the thread
  // is back among the inline slots. Otherwise kernels that try twice would take for ever.
  struct Nesting {
    bool refusing = false;
    uint32_t refused_at = 0;  // 1 + the depth of the call whose kernel made the refused one, or 0
    uintptr_t refused_from = 0;  // where on the stack the call was refused
    char why[kErrorBytes] = "";  // the message of the last refusal
  };
  Nesting nesting;

  template <class F>
  void for_each_slot(const F& f) {
    for (HazardSlot& s : slots) f(s);
    for (Block* b = deeper.load(std::memory_order_acquire); b != nullptr;
         b = b->next.load(std::memory_order_acquire))
      for (HazardSlot& s : b->slots) f(s);
  }
  bool is_timed() const noexcept { return until_sample < 0; }
  // Returns the buffer for the message of a failing kernel, which belongs to the innermost guard.
  char* message() noexcept {
    const uint32_t at = depth - 1;
    return at < kInlineSlots ? errors[at] : deep_message(at);
  }
  char* deep_message(uint32_t at) noexcept;

  // Returns false if memory for the slot of the current depth runs out.
  bool reserve_slot() noexcept;
  // Returns whether the kernel of this call failed because a nested call was refused. `guarded` is
  // set inside the call's guard. A frozen handle has no guard, so its place on the stack shows
  // whether it encloses the refused call.
  bool failed_by_refusal(bool guarded) noexcept;
};

inline ThreadRecord& this_thread() {
  detail::ThreadHead* t = detail::t_thread;
  return static_cast<ThreadRecord&>(t != nullptr ? *t : detail::register_thread());
}
// Returns null if memory runs out.
inline ThreadRecord* try_this_thread() noexcept {
  detail::ThreadHead* t = detail::t_thread;
  return static_cast<ThreadRecord*>(t != nullptr ? t : detail::try_register_thread());
}

inline bool inside_call() noexcept {
  return detail::t_thread != nullptr && detail::t_thread->depth > 0;
}

// When a thread ends, `hook` frees its value in `locals` unless that is null.
void set_thread_exit_hook(int local, void (*hook)(void* value)) noexcept;

// Returns whether this thread's stack has less room than a call may need: 256 KiB, or a quarter of
// a small stack. Returns false on the stack of a fiber. A thread's first call may read /proc and
// allocate.
bool stack_is_low() noexcept;

// Sets whether readers in all threads must fence. Only tests change this where membarrier works.
void set_reader_fences(bool on) noexcept;
bool reader_fences() noexcept;
// Registers the process for membarrier. Readers fence if that fails.
void register_membarrier() noexcept;

void abandon_other_threads() noexcept;

const AppendList<ThreadRecord>& thread_records() noexcept;

// Calls f(const void*) for every object that some thread is using.
template <class F>
void for_each_hazard(const F& f) {
#if defined(YARD_UNDER_TSAN)
  constexpr auto kOrder = std::memory_order_seq_cst;
#else
  constexpr auto kOrder = std::memory_order_acquire;
#endif
  for (ThreadRecord& record : thread_records())
    record.for_each_slot([&](const HazardSlot& s) {
      if (const void* p = s.load(kOrder)) f(p);
    });
}

}  // namespace yard::base
