// SPDX-License-Identifier: Apache-2.0
// One record per thread: the hazard slots that say what the thread is using, and a few pointers that
// upper layers keep for it.
//
// A record is found through one thread_local pointer, is written by its thread alone, and is read by
// whoever wants to free something (reclaimer.h). Records are never freed: a thread that ends hands its
// record on to the next one that starts. The list of records only grows at its head, so it can be
// walked without a lock, also in a child of fork.
#pragma once

#include <atomic>
#include <cstdint>

namespace yard::base {

#if defined(__SANITIZE_THREAD__)
#define YARD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define YARD_TSAN 1
#endif
#endif

// How a reader orders "I use p" before "p is still current". With membarrier the reclaimer pays for
// both; where the kernel refuses it readers fence. The thread sanitizer understands neither, so its
// builds use sequentially consistent accesses.
#if defined(YARD_TSAN)
inline constexpr std::memory_order kAnnounce = std::memory_order_seq_cst;
inline constexpr std::memory_order kReread = std::memory_order_seq_cst;
inline constexpr std::memory_order kFollow = std::memory_order_acquire;
#else
inline constexpr std::memory_order kAnnounce = std::memory_order_relaxed;
inline constexpr std::memory_order kReread = std::memory_order_relaxed;
// Loads of a pointer that is then followed: the data dependency orders them on all our machines, and
// an acquire would cost three times the guard on aarch64 (store-release then load-acquire).
inline constexpr std::memory_order kFollow = std::memory_order_relaxed;
#endif

// Set where membarrier is refused, or by tests: readers must fence.
[[gnu::visibility("hidden")]] extern std::atomic<bool> g_reader_fences;

inline void reader_barrier() noexcept {
#if !defined(YARD_TSAN)
  if (g_reader_fences.load(std::memory_order_relaxed)) [[unlikely]]
    std::atomic_thread_fence(std::memory_order_seq_cst);
  else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

using HazardSlot = std::atomic<const void*>;

// Pointers that a layer keeps with the thread; each layer names its own index.
inline constexpr int kThreadLocals = 4;

struct alignas(64) ThreadRecord {
  // One slot per nested call: a kernel may call ops that call ops.
  static constexpr uint32_t kInlineSlots = 8;
  HazardSlot slots[kInlineSlots]{};
  uint32_t depth = 0;                   // of the owner: slots in use
  void* locals[kThreadLocals] = {};     // of the owner
  struct Block {
    HazardSlot slots[32]{};
    std::atomic<Block*> next{nullptr};
  };
  std::atomic<Block*> deeper{nullptr};  // slots beyond kInlineSlots, kept once made
  std::atomic<bool> in_use{true};
  ThreadRecord* next = nullptr;

  // The slot for the current depth. Allocates only the first time a thread nests this deep.
  HazardSlot& slot() noexcept { return depth < kInlineSlots ? slots[depth] : deep_slot(depth); }
  HazardSlot& deep_slot(uint32_t at) noexcept;
};

[[gnu::visibility("hidden")]] extern thread_local constinit ThreadRecord* t_record;

// This thread's record; registers the thread on first use.
ThreadRecord& register_thread() noexcept;
inline ThreadRecord& this_thread() noexcept {
  return t_record != nullptr ? *t_record : register_thread();
}

// Whether this thread is inside a call: it must not wait for calls to end.
inline bool inside_call() noexcept { return t_record != nullptr && t_record->depth > 0; }

// Called with a thread's record when the thread ends, before the record is handed on. At most one per
// index of `locals`; the hook frees what it put there.
void set_thread_exit_hook(int local, void (*hook)(void* value)) noexcept;

// Calls f(const void*) for everything some thread is using.
template <class F>
void for_each_hazard(const F& f);
// The newest record; for walking.
ThreadRecord* first_record() noexcept;

// In a child of fork: the other threads are gone, what they used is not in use any more.
void abandon_other_threads() noexcept;

template <class F>
void for_each_hazard(const F& f) {
  for (ThreadRecord* r = first_record(); r != nullptr; r = r->next) {
    const auto look = [&](const HazardSlot& s) {
#if defined(YARD_TSAN)
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
