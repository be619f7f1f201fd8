// SPDX-License-Identifier: Apache-2.0
// Something with a lock in it that a forked child must not share: another thread of the parent may have
// held the lock, and nobody is there to release it. The child gets a new one; the old is left behind.
#pragma once

#include <atomic>

#include "base/this_process.h"

namespace yard::base {

template <class T>
class PerProcess {
 public:
  constexpr PerProcess() noexcept = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  // This process's. Never freed.
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

}  // namespace yard::base
