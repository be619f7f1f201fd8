// SPDX-License-Identifier: Apache-2.0
// Fork: a child leaves the inherited locks alone and goes on from the last published snapshot.
#pragma once

#include <atomic>

namespace yard::dispatch {

// Registers the handler that makes forked children usable at once, once per process. Takes no lock at fork.
void watch_forks();

// A T with locks in it, which a forked child replaces: the threads that held them do not exist there. What the parent
// had is left as it is and never freed.
template <class T>
class ReplacedInChild {
 public:
  ReplacedInChild() : now_(new T) {}
  ~ReplacedInChild() { delete now_.load(std::memory_order_acquire); }
  ReplacedInChild(const ReplacedInChild&) = delete;
  ReplacedInChild& operator=(const ReplacedInChild&) = delete;

  T& get() const noexcept { return *now_.load(std::memory_order_acquire); }
  // In the child's fork handler.
  void replace(T* fresh = new T) noexcept { now_.store(fresh, std::memory_order_release); }

 private:
  std::atomic<T*> now_;
};

}  // namespace yard::dispatch
