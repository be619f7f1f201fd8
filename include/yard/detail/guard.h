// SPDX-License-Identifier: Apache-2.0
// The read side of Switchyard's reclamation, as the library and the inline calls of bound handles share
// it. Not for direct use.
//
// A thread announces what it uses in a hazard slot; whoever wants to free something looks at all slots
// first and never waits (src/base/reclaimer.h). Every thread has one slot per nested call.
#pragma once

#include <cxxabi.h>
#include <yard/detail/sanitizers.h>
#include <yard/status.h>

#include <atomic>
#include <cstdint>

namespace yard::detail {

class Commit;
struct CallMemos;
struct FunctionCalls;
struct HookFrame;
struct ScopeState;

// How a reader orders "I use p" before "p is still current". With membarrier the reclaimer pays for
// both; where the kernel refuses it readers fence. The thread sanitizer understands neither, so its
// builds use sequentially consistent accesses.
#if defined(YARD_UNDER_TSAN)
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

using HazardSlot = std::atomic<const void*>;

// Empty, never written.
extern YARD_API CallMemos kNoMemos;

// What a call reads and writes of its thread. Written by the thread alone.
struct alignas(64) ThreadHead {
  static constexpr uint32_t kInlineSlots = 8;
  HazardSlot slots[kInlineSlots]{};
  uint32_t depth = 0;               // slots in use
  std::atomic<uint32_t> fences{0};  // not 0: readers must fence
  // This thread's counters: chunks of kPerChunk, null until counted in (src/base/counters.h).
  using Value = std::atomic<uint64_t>;
  std::atomic<Value*>* counters = nullptr;
  // What this thread remembers of its calls (memo.h); kNoMemos until something is remembered.
  CallMemos* memos = &kNoMemos;
  // The policy scope the thread is in (yard/policy.h): its number, 0 outside of any, and what it says. Inside a
  // commit group kCommitted is added, which no scope's number has: such calls go by no memo.
  static constexpr uint64_t kCommitted = uint64_t{1} << 63;
  // Part of the numbers of scopes that are traced (yard/trace.h). Functions look for both at once.
  static constexpr uint64_t kTraced = uint64_t{1} << 62;
  uint64_t scope = 0;
  // Of hash_end() (memo.h): to build it takes four instructions on aarch64, to load it one.
  uint64_t hash_factor = 0x82bb1ee2dd4f7d61ull;
  void set_scope(uint64_t id) noexcept { scope = id | (commit != nullptr ? kCommitted : 0); }
  const ScopeState* scope_state = nullptr;
  // The devices and sets of hooks the thread is in (yard/hook.h), the innermost first; null: none.
  const HookFrame* hooks = nullptr;
  // Where a kernel that fails leaves its message: a buffer for each inline slot, since a kernel that has left one may
  // call ops before it returns. (On the stack it would bring every caller a stack protector.)
  static constexpr uint64_t kErrorBytes = 512;
  // That of the next guard, which will have an inline slot.
  [[gnu::always_inline]] char* next_message() noexcept { return errors[depth]; }
  // That of the innermost guard.
  [[gnu::always_inline]] char* message() noexcept {
    const uint32_t at = depth - 1;
    return at < kInlineSlots ? errors[at] : deep_message(at);
  }
  // The innermost commit group the thread is in (yard/function.h); null: none.
  Commit* commit = nullptr;
  // Who ran this thread's last calls of dispatched functions (function.h); null until there was one.
  FunctionCalls* functions = nullptr;
  char errors[kInlineSlots][kErrorBytes];

  // The slot for the current depth. Allocates only the first time a thread nests this deep.
  [[gnu::always_inline]] HazardSlot& slot() noexcept {
    return depth < kInlineSlots ? slots[depth] : deep_slot(depth);
  }
  YARD_API HazardSlot& deep_slot(uint32_t at) noexcept;
  YARD_API char* deep_message(uint32_t at) noexcept;

  [[gnu::always_inline]] void barrier() const noexcept {
#if !defined(YARD_UNDER_TSAN)
    if (fences.load(std::memory_order_relaxed) != 0) [[unlikely]]
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
};

// Null until the thread's first call.
extern YARD_API thread_local constinit ThreadHead* t_thread
    __attribute__((tls_model("initial-exec")));
YARD_API ThreadHead& register_thread() noexcept;

// A reader's slot for the length of a call. Nests. Made and used by one thread; costs a few stores.
class Guard {
 public:
  [[gnu::always_inline]] explicit Guard(ThreadHead& thread) noexcept
      : thread_(thread), slot_(thread.slot()) {
    ++thread_.depth;
  }
  // For a thread with an inline slot left: no call on the way.
  struct Inline {};
  [[gnu::always_inline]] Guard(ThreadHead& thread, Inline) noexcept
      : thread_(thread), slot_(thread.slots[thread.depth]) {
    ++thread_.depth;
  }
  const HazardSlot& slot() const noexcept { return slot_; }
  [[gnu::always_inline]] ~Guard() {
    slot_.store(nullptr, std::memory_order_release);
    --thread_.depth;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // What `source` points to now, held until the next protect(), move_to() or the end. One guard does this
  // once: nothing orders what was read under a first protect() before a second one.
  template <class T>
  [[gnu::always_inline]] T* protect(const std::atomic<T*>& source) noexcept {
    T* p = source.load(kFollow);
    for (;;) {
      slot_.store(p, kAnnounce);
      thread_.barrier();
      T* again = source.load(kReread);
      if (again == p) [[likely]]
        return p;
      p = again;
    }
  }

  // Announces `p` without knowing whether it is still there. It is held if whatever is changed before `p` is
  // let go is found unchanged afterwards.
  [[gnu::always_inline]] void announce(const void* p) noexcept { move_to(p); }

  // Holds `part` instead of what was held, which must own it: from here on the whole may go. `part` must
  // have been read out of the whole, and nothing else may have been: that dependency keeps the reading
  // before the letting go.
  [[gnu::always_inline]] void move_to(const void* part) noexcept {
    slot_.store(part, kAnnounce);
    thread_.barrier();
  }

  // The same when other things were read out of what was held, too.
  void move_to_after_reading(const void* part) noexcept {
#if !defined(YARD_UNDER_TSAN)  // which knows no fences; its stores are stronger
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    move_to(part);
  }

 private:
  ThreadHead& thread_;
  HazardSlot& slot_;
};

// In a catch (...): whether what was caught is not a C++ exception but the unwinding of a thread that is
// being cancelled, which must be let through. (Catching abi::__forced_unwind by reference says the same, but
// binds a reference to nothing.)
inline bool thread_is_unwinding() noexcept {
  return abi::__cxa_current_exception_type() == nullptr;
}

// Counting: writes only memory of the thread.
[[gnu::always_inline]] inline void count(ThreadHead::Value& v) noexcept {
  v.store(v.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}
inline constexpr uint32_t kPerChunk = 128;
YARD_API ThreadHead::Value& make_counter(ThreadHead& thread, uint32_t id) noexcept;
// This thread's part of a counter, for the life of the thread in this process.
[[gnu::always_inline]] inline ThreadHead::Value& counter(ThreadHead& thread, uint32_t id) noexcept {
  if (thread.counters != nullptr) [[likely]] {
    if (auto* chunk = thread.counters[id / kPerChunk].load(std::memory_order_relaxed)) [[likely]]
      return chunk[id % kPerChunk];
  }
  return make_counter(thread, id);
}
inline void count(ThreadHead& thread, uint32_t id) noexcept { count(counter(thread, id)); }

}  // namespace yard::detail
