// SPDX-License-Identifier: Apache-2.0
// Something is being changed: told to a forked child, in which nobody will finish it.
#pragma once

#include <yard/detail/sanitizers.h>

#include <atomic>
#include <mutex>
#include <optional>

namespace yard::base {

// A child finds nothing that was written after this without what was written before.
inline void in_this_order() noexcept {
#if !defined(YARD_UNDER_TSAN)  // which knows no fences, and no fork either
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

class Editing {
 public:
  explicit Editing(std::atomic<bool>& flag) noexcept : flag_(flag) {
    flag_.store(true, std::memory_order_relaxed);
    in_this_order();
  }
  ~Editing() { flag_.store(false, std::memory_order_release); }
  Editing(const Editing&) = delete;
  Editing& operator=(const Editing&) = delete;

 private:
  std::atomic<bool>& flag_;
};

// A mutex that tells readers from those who change what it guards: what a reader held at a fork is whole. Whoever
// changes something takes `for_changes`.
class EditMutex {
 public:
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }
  bool being_edited() const noexcept { return editing_.load(std::memory_order_relaxed); }

  class ForChanges {
   public:
    explicit ForChanges(EditMutex& of) noexcept : of_(of) {}
    void lock() {
      of_.mutex_.lock();
      of_.now_.emplace(of_.editing_);
    }
    void unlock() {
      of_.now_.reset();
      of_.mutex_.unlock();
    }

   private:
    EditMutex& of_;
  };
  ForChanges for_changes{*this};

 private:
  std::mutex mutex_;
  std::atomic<bool> editing_{false};
  std::optional<Editing> now_;  // under the mutex
};

}  // namespace yard::base
