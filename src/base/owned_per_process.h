// SPDX-License-Identifier: Apache-2.0
// As per_process.h, for something that belongs to an object and goes with it. The child's is made from the
// parent's if nobody held the lock at the fork, or, where that is an EditMutex, only to read; else it starts empty.
#pragma once

#include <atomic>
#include <thread>

#include "base/this_process.h"

namespace yard::base {

// T has a mutex `lock` and `inherit(T& parents)`, which is called when nobody changes the parent's.
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
        } else if constexpr (requires { n->value.lock.being_edited(); }) {
          if (!n->value.lock.being_edited()) made->value.inherit(n->value);
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

}  // namespace yard::base
