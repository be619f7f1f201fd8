// SPDX-License-Identifier: Apache-2.0
// As per_process.h, for something that belongs to an object and goes with it. The child's is made from the
// parent's if nobody held the lock at the fork; else it starts empty.
#pragma once

#include <unistd.h>

#include <atomic>
#include <thread>

namespace yard::base {

// T has a mutex `lock` and `inherit(T& parents)`, which is called with the parent's lock held.
template <class T>
class OwnedPerProcess {
 public:
  OwnedPerProcess() : node_(new Node{::getpid(), {}}), claim_(::getpid()) {}
  ~OwnedPerProcess() {
    Node* n = node_.load(std::memory_order_acquire);
    if (n->pid == ::getpid()) delete n;
  }
  OwnedPerProcess(const OwnedPerProcess&) = delete;
  OwnedPerProcess& operator=(const OwnedPerProcess&) = delete;

  T& get() {
    const pid_t pid = ::getpid();
    Node* n = node_.load(std::memory_order_acquire);
    while (n->pid != pid) {
      pid_t seen = claim_.load(std::memory_order_acquire);
      // One thread of the child makes it: a try_lock must fail only for a lock held at the fork.
      if (seen != pid && claim_.compare_exchange_strong(seen, pid)) {
        auto* made = new Node{pid, {}};
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
    pid_t pid;
    T value;
  };
  std::atomic<Node*> node_;
  std::atomic<pid_t> claim_;
};

}  // namespace yard::base
