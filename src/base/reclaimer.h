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

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/thread_record.h"

namespace yard::base {

// A reader's slot for the length of a call. Nests. Made and used by one thread; costs a few stores.
class Guard {
 public:
  explicit Guard(ThreadRecord& thread) noexcept : thread_(thread), slot_(thread.slot()) {
    ++thread_.depth;
  }
  ~Guard() {
    slot_.store(nullptr, std::memory_order_release);
    --thread_.depth;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // What `source` points to now, held until the next protect(), move_to() or the end.
  template <class T>
  T* protect(const std::atomic<T*>& source) noexcept {
    T* p = source.load(kFollow);
    for (;;) {
      slot_.store(p, kAnnounce);
      reader_barrier();
      T* again = source.load(kReread);
      if (again == p) [[likely]] return p;
      p = again;
    }
  }

  // Holds `part` instead of what was held, which must own it: from here on the whole may go. `part` must
  // have been read out of the whole, and nothing else may have been: that dependency keeps the reading
  // before the letting go.
  void move_to(const void* part) noexcept {
    slot_.store(part, kAnnounce);
    reader_barrier();
  }

  // The same when other things were read out of what was held, too.
  void move_to_after_reading(const void* part) noexcept {
#if !defined(YARD_TSAN)  // which knows no fences; its stores are stronger
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    move_to(part);
  }

 private:
  ThreadRecord& thread_;
  HazardSlot& slot_;
};

class Reclaimer {
 public:
  // Hands over an unlinked object. It is freed once no slot holds `a` nor `b` (the object itself, and
  // where it was linked inside something a reader may have entered by, that thing too). Any thread.
  void retire(void* object, void (*free)(void*), const void* a, const void* b = nullptr);

  // Frees what nobody uses; what the freeing retires is looked at too. Returns how much is left.
  // Any thread, also inside a call. Runs the destructors of what it frees, holding no lock.
  size_t collect();

  // How much is waiting.
  size_t pending() const;

 private:
  struct Retired {
    void* object;
    void (*free)(void*);
    const void* a;
    const void* b;
  };
  mutable std::mutex mutex_;
  std::vector<Retired> retired_;
};

// The process's reclaimer. In a child of fork it is a new one: what the old one held is left behind.
Reclaimer& reclaimer() noexcept;
void abandon_reclaimer() noexcept;

// A full barrier in every running thread of the process.
void barrier_in_all_threads() noexcept;
// Asks the kernel for membarrier (again, in a child of fork); readers fence where it refuses.
void register_membarrier() noexcept;
// Tests: readers fence although membarrier works, or not any more.
void force_reader_fences(bool on) noexcept;

}  // namespace yard::base
