// SPDX-License-Identifier: Apache-2.0
// Freeing what readers may still be using, without ever waiting for them.
//
// Readers announce what they use in their hazard slots (protect(), below). A writer unlinks an object,
// retires it, and collects: whatever no slot names is freed, the rest stays for the next collection.
// A reader that never ends holds back only the objects it names.
//
//   base::Guard g(thread);
//   const Snapshot* s = g.protect(current);          // s cannot be freed until g moves on or ends
//   ...
//   current.store(next); reclaimer().retire(old, deleter, old); reclaimer().collect();
#pragma once

#include <yard/detail/guard.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/mutex.h"

namespace yard::base {

using detail::Guard;
using detail::HazardSlot;
using detail::kFollow;
using detail::kReread;

// Pointers that a layer keeps with the thread; each layer names its own index.
inline constexpr int kThreadLocals = 5;

// One record per thread: the hazard slots that announce what the thread is using, and a few pointers that upper layers keep
// for it. It is found through one thread_local pointer, written by its thread alone, and read by collect(). Records are
// never freed: the next thread takes that of one that has ended. Their list grows at its head only, so it can be walked
// without a lock, also in a forked child.
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

  // Calls that nest too deep. After one was refused, so are all nested calls until the thread is back among the inline
  // slots; else kernels that try twice would take for ever.
  struct Nesting {
    bool refusing = false;
    uint32_t refused_at =
        0;  // 1 + the depth of the call whose kernel made the refused one; 0: none
    uintptr_t refused_from = 0;  // where on the stack that was
    char why[kErrorBytes] = "";  // of the last refusal
  };
  Nesting nesting;

  // Whether count_down() has found that the current call is timed.
  bool is_timed() const noexcept { return until_sample < 0; }
  // Where the message of a failing kernel is: of the innermost guard.
  char* message() noexcept {
    const uint32_t at = depth - 1;
    return at < kInlineSlots ? errors[at] : deep_message(at);
  }
  char* deep_message(uint32_t at) noexcept;

  // False: there is no memory for the slot of the current depth.
  bool reserve_slot() noexcept;
  // In a call whose kernel failed: whether that was because a nested call was refused. `guarded`: inside the call's guard; a
  // frozen handle has none, and is known to enclose the refused call by its place on the stack.
  bool failed_by_refusal(bool guarded) noexcept;
};

// This thread's record; registers the thread on first use. Throws std::bad_alloc if there is no memory for that.
inline ThreadRecord& this_thread() {
  detail::ThreadHead* t = detail::t_thread;
  return static_cast<ThreadRecord&>(t != nullptr ? *t : detail::register_thread());
}
// The same for calls; null if there is no memory.
inline ThreadRecord* try_this_thread() noexcept {
  detail::ThreadHead* t = detail::t_thread;
  return static_cast<ThreadRecord*>(t != nullptr ? t : detail::try_register_thread());
}

// Whether this thread is inside a call: it must not wait for calls to end.
inline bool inside_call() noexcept {
  return detail::t_thread != nullptr && detail::t_thread->depth > 0;
}

// Called with a thread's record when the thread ends, before the record is handed on. At most one per
// index of `locals`; the hook frees what it put there.
void set_thread_exit_hook(int local, void (*hook)(void* value)) noexcept;

// Whether less of this thread's stack is left than a call may need: 256 KiB, or a quarter of a small stack. False on a stack
// that is not the thread's own, as that of a fiber. The first question of a thread may read /proc; allocates then only.
bool stack_is_low() noexcept;

// Calls f(const void*) for everything some thread is using.
template <class F>
void for_each_hazard(const F& f);
// The newest record; for walking.
ThreadRecord* first_record() noexcept;

// Whether readers of all threads, those to come included, must fence. Tests switch it while membarrier works.
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

// An unlinked object. It is freed once no slot holds any of `held_by`: the object itself, and whatever else a reader may
// hold while it uses the object.
struct Retired {
  void* object = nullptr;
  void (*free)(void*) = nullptr;
  std::vector<const void*> held_by;
  std::unique_ptr<Retired> next = nullptr;  // the reclaimer's
};

class Reclaimer {
 public:
  Reclaimer() = default;
  ~Reclaimer();
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // Hands over an object. Any thread. The first form is for what is retired where there may be no memory.
  void retire(std::unique_ptr<Retired> made) noexcept;
  void retire(void* object, void (*free)(void*), std::vector<const void*> held_by);

  // Frees what is not in use; what the freeing retires is looked at too. Returns how much is left.
  // Any thread, also inside a call. Runs the destructors of what it frees, holding no lock. Without memory it frees nothing,
  // and a later call does.
  size_t collect() noexcept;

  // How much is waiting.
  size_t pending() const;

 private:
  using List = std::unique_ptr<Retired>;
  static void push(List& to, List item) noexcept {
    item->next = std::move(to);
    to = std::move(item);
  }
  static List pop(List& from) noexcept {
    List item = std::move(from);
    from = std::move(item->next);
    return item;
  }
  // Adds all of `from`.
  void requeue(List from) noexcept;

  mutable Mutex mutex_{Rank::kReclaimer};
  List retired_;
  size_t count_ = 0;  // of these
};

// The process's reclaimer.
Reclaimer& reclaimer() noexcept;
// In a forked child, after abandon_other_threads().
void restart_reclaimer() noexcept;

// Becomes true, at some collect(), when the calls that are in flight now have ended.
std::shared_ptr<const std::atomic<bool>> when_calls_end();
// In a forked child: whether the calls are over that the forking thread was inside of.
bool inherited_calls_ended() noexcept;

// A full barrier in every running thread of the process.
void barrier_in_all_threads() noexcept;
// Registers with the operating system for membarrier (again in a forked child); readers fence where that fails.
void register_membarrier() noexcept;

}  // namespace yard::base
