// SPDX-License-Identifier: Apache-2.0
// Older helpers for surviving fork(). New code uses mutex.h instead.
//
// In a forked child only the forking thread exists. A lock may be held for ever by a thread that is gone, and what that
// thread was changing may be half done. The rules:
//
// - State with a lock lives in a PerProcess (for the process) or an OwnedPerProcess (for an object). The child gets state of
//   its own with a new lock. The parent's state is left behind, never touched and never freed. An OwnedPerProcess inherits
//   the parent's data if no thread was changing it at the fork.
// - What the child must reset at once, before any code runs in it, is a function registered with at_fork_in_child().
// - Threads are not started at the fork but at the child's first call: FirstUse.
//
// A child that was made without the handlers of fork() (a raw clone) is recognised by this_process().
#pragma once

#include <unistd.h>
#include <yard/detail/guard.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/mutex.h"

namespace yard::base {

// Identifies this process by its number and its forks: in a PID namespace a child may have its parent's number, and a child
// that was made without the handlers of fork has its parent's count of forks. Never 0.
inline uint32_t this_process() noexcept {
  constexpr int kPidBits = 22;  // the kernel's limit
  return static_cast<uint32_t>(forks() << kPidBits) ^ static_cast<uint32_t>(::getpid());
}

// Makes forked children usable: their thread records, reclaimer and counters restart. Once per process; takes no lock in
// the child. Every runtime does this.
void watch_forks();
// The same, and has `reset` called in every forked child, on its only thread, after those of earlier registrations. It must
// take no lock that another thread may have held. Registering a function again has no effect.
void at_fork_in_child(void (*reset)());

using InsidePlugin = ForeignCode;

// A T for each process, never freed; made by its default constructor.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() noexcept = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    const uint32_t here = this_process();
    Node* n = node_.load(std::memory_order_acquire);
    while (n == nullptr || n->process != here) {
      auto* made = new Node{here, {}};
      if (node_.compare_exchange_strong(n, made, std::memory_order_acq_rel)) return made->value;
      delete made;
    }
    return n->value;
  }

 private:
  struct Node {
    uint32_t process;
    T value;
  };
  std::atomic<Node*> node_{nullptr};
};

// The same for a member of an object, freed with it. T has a mutex `lock` and `inherit(T& parents)`, which is called in the
// child when no thread was changing the parent's; otherwise the child starts empty.
template <class T>
class OwnedPerProcess {
 public:
  OwnedPerProcess() : node_(new Node{this_process(), {}}), claim_(this_process()) {}
  ~OwnedPerProcess() {
    Node* n = node_.load(std::memory_order_acquire);
    if (n->process == this_process()) delete n;
  }
  OwnedPerProcess(const OwnedPerProcess&) = delete;
  OwnedPerProcess& operator=(const OwnedPerProcess&) = delete;

  T& get() {
    const uint32_t here = this_process();
    Node* n = node_.load(std::memory_order_acquire);
    while (n->process != here) {
      uint32_t seen = claim_.load(std::memory_order_acquire);
      // One thread of the child makes it: a try_lock must fail only for a lock held at the fork.
      if (seen != here && claim_.compare_exchange_strong(seen, here)) {
        auto* made = new Node{here, {}};
        if (n->value.lock.try_lock()) {
          made->value.inherit(n->value);
          n->value.lock.unlock();
        }
        node_.store(made, std::memory_order_release);
        return made->value;
      }
      std::this_thread::yield();
      n = node_.load(std::memory_order_acquire);
    }
    return n->value;
  }

 private:
  struct Node {
    uint32_t process;
    T value;
  };
  std::atomic<Node*> node_;
  std::atomic<uint32_t> claim_;
};

// Calls `then` once in each forked child, at its first use of the library, inside that call and holding no lock of a
// runtime: threads of the parent that the child needs, too, start there. Not at the fork: a child that only execs shall
// have no thread. What `then` throws is logged.
class FirstUse {
 public:
  // `here`: also once in this process.
  explicit FirstUse(std::function<void()> then, bool here = false);
  // `then` is not running and will not be called when this returns.
  ~FirstUse();
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;

  // `then` is called at the next use, whether or not it was called in this process.
  void again() noexcept;

 private:
  friend void first_use() noexcept;
  void call_once() const;
  const std::function<void()> then_;
  mutable std::atomic<uint32_t> done_in_;  // the process in which it is not to be called any more
};
// The library is used. Quick where there is nothing to do.
void first_use() noexcept;

}  // namespace yard::base
