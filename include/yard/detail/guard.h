// SPDX-License-Identifier: Apache-2.0
// The read side of reclamation by hazard pointers. Not for direct use. Each nested call announces
// the object that it uses in a slot of its thread. The reclaimer checks all slots before it frees.
#pragma once

#include <yard/status.h>

#include <atomic>

namespace yard::detail {

struct CallMemos;
struct FunctionCalls;
struct ScopeState;

// Readers must order the announcement of p before the check that p is current. The reclaimer calls
// membarrier; where that is refused, readers fence. The thread sanitizer supports neither.
#if defined(YARD_UNDER_TSAN)
inline constexpr std::memory_order kAnnounce = std::memory_order_seq_cst;
inline constexpr std::memory_order kReread = std::memory_order_seq_cst;
inline constexpr std::memory_order kFollow = std::memory_order_acquire;
#else
inline constexpr std::memory_order kAnnounce = std::memory_order_relaxed;
inline constexpr std::memory_order kReread = std::memory_order_relaxed;
// For a pointer that is then followed. Acquire costs three times as much on aarch64.
inline constexpr std::memory_order kFollow = std::memory_order_relaxed;
#endif

using HazardSlot = std::atomic<const void*>;

extern YARD_API CallMemos kNoMemos;  // empty, never written

struct alignas(64) ThreadHead {
  static constexpr uint32_t kInlineSlots = 8;
  HazardSlot slots[kInlineSlots]{};
  uint32_t depth = 0;  // slots in use
  // The number of inline slots that need no fence; 0 where readers must fence.
  std::atomic<uint32_t> unfenced{kInlineSlots};
  // Calls until the next timed call. The library sets a new random number afterwards.
  static constexpr int32_t kSampledOneIn = 128;
  int32_t until_sample = kSampledOneIn / 2;
  // Call this once for each call. Returns whether the call is timed.
  [[gnu::always_inline]] bool count_down() noexcept { return --until_sample < 0; }
  // Counters in chunks, which are null until first used.
  using Value = std::atomic<uint64_t>;
  std::atomic<Value*>* counters = nullptr;
  CallMemos* memos = &kNoMemos;  // memo.h
  // The number of the thread's policy scope (policy.h), or 0. Traced scopes (trace.h) have the bit
  // kTraced, and scopes that concern functions have kProviders.
  static constexpr uint64_t kTraced = uint64_t{1} << 62;
  static constexpr uint64_t kProviders = uint64_t{1} << 61;
  uint64_t scope = 0;
  uint64_t hash_factor = 0x82bb1ee2dd4f7d61ull;  // of hash_end(); loading takes one instruction
  const ScopeState* scope_state = nullptr;
  static constexpr uint64_t kErrorBytes = 512;
  // Returns the message buffer for the next guard's kernel. The guard must get an inline slot.
  [[gnu::always_inline]] char* next_message() noexcept { return errors[depth]; }
  FunctionCalls* functions = nullptr;  // memos of dispatched functions (function.h)
  // One buffer for each inline slot. On the stack they would give every caller a stack protector.
  char errors[kInlineSlots][kErrorBytes];

  // Allocates only the first time a thread nests this deep.
  [[gnu::always_inline]] HazardSlot& slot() noexcept {
    return depth < kInlineSlots ? slots[depth] : deep_slot(depth);
  }
  YARD_API HazardSlot& deep_slot(uint32_t at) noexcept;

  [[gnu::always_inline]] bool is_unfenced() const noexcept {
    return depth < unfenced.load(std::memory_order_relaxed);
  }
  [[gnu::always_inline]] void barrier() const noexcept {
#if !defined(YARD_UNDER_TSAN)
    if (unfenced.load(std::memory_order_relaxed) == 0) [[unlikely]]
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
};

// Null until the thread's first call.
extern YARD_API thread_local constinit ThreadHead* t_thread
    __attribute__((tls_model("initial-exec")));
// Throws std::bad_alloc if memory runs out; try_register_thread() returns null.
YARD_API ThreadHead& register_thread();
YARD_API ThreadHead* try_register_thread() noexcept;

// The slot of a call. Guards of a thread nest. With kUnfenced, the thread must be is_unfenced().
template <bool kUnfenced>
class BasicGuard {
 public:
  [[gnu::always_inline]] explicit BasicGuard(ThreadHead& thread) noexcept
      : thread_(thread), slot_(kUnfenced ? thread.slots[thread.depth] : thread.slot()) {
    ++thread_.depth;
  }
  // For functions, which may call themselves. Throws yard::Error if calls nest too deep.
  template <class Site>
  [[gnu::always_inline]] BasicGuard(ThreadHead& thread, const Site& site)
      : thread_(thread),
        slot_(thread.depth < ThreadHead::kInlineSlots ? thread.slots[thread.depth]
                                                      : deep_slot(thread, site)) {
    ++thread_.depth;
  }
  const HazardSlot& slot() const noexcept { return slot_; }
  [[gnu::always_inline]] ~BasicGuard() {
    slot_.store(nullptr, std::memory_order_release);
    --thread_.depth;
  }
  BasicGuard(const BasicGuard&) = delete;
  BasicGuard& operator=(const BasicGuard&) = delete;

  // Holds the object that `source` points to until move_to() or the end. Call this once: reads
  // under a first protect() are not ordered before a second one.
  template <class T>
  [[gnu::always_inline]] T* protect(const std::atomic<T*>& source) noexcept {
    T* p = source.load(kFollow);
    for (;;) {
      move_to(p);
      T* again = source.load(kReread);
      if (again == p) [[likely]]
        return p;
      p = again;
    }
  }

  // Announces `part` instead. This holds `part` if the object held so far owns it and nothing else
  // was read from that object (the dependency orders the read before the release), or if something
  // that changes before `part` is retired is found unchanged afterwards.
  [[gnu::always_inline]] void move_to(const void* part) noexcept {
    slot_.store(part, kAnnounce);
    if constexpr (!kUnfenced)
      thread_.barrier();
    else
      std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // Like move_to(), for when other things were read from the old object, too.
  void move_to_after_reading(const void* part) noexcept {
#if !defined(YARD_UNDER_TSAN)  // it does not support fences; its stores are stronger
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    move_to(part);
  }

 private:
  ThreadHead& thread_;
  HazardSlot& slot_;
};
using Guard = BasicGuard<false>;

[[gnu::always_inline]] inline void count(ThreadHead::Value& v) noexcept {
#if defined(__x86_64__) && !defined(YARD_UNDER_TSAN)
  asm("addq $1, %0" : "+m"(v) : : "cc");  // g++ makes three instructions of the code below
#else
  v.store(v.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
#endif
}
inline constexpr uint32_t kPerChunk = 128;
YARD_API ThreadHead::Value& make_counter(ThreadHead& thread, uint32_t id) noexcept;
[[gnu::always_inline]] inline ThreadHead::Value& counter(ThreadHead& thread, uint32_t id) noexcept {
  if (thread.counters != nullptr) [[likely]]
    if (auto* chunk = thread.counters[id / kPerChunk].load(std::memory_order_relaxed)) [[likely]]
      return chunk[id % kPerChunk];
  return make_counter(thread, id);
}
inline void count(ThreadHead& thread, uint32_t id) noexcept { count(counter(thread, id)); }

// In a catch (...), tells whether the exception unwinds a cancelled thread and must be rethrown.
YARD_API bool thread_is_unwinding() noexcept;

}  // namespace yard::detail
