// SPDX-License-Identifier: Apache-2.0
// What is made at its first use. A function's static will not do: a forked child whose parent had a thread at
// making it waits for that thread for ever. std::call_once restarts there, as glibc's pthread_once does.
#pragma once

#include <yard/detail/guard.h>

#include <atomic>
#include <mutex>

namespace yard::base {

// Made by one thread while others wait, and never freed.
template <class T>
class Lazy {
 public:
  constexpr explicit Lazy(T* (*make)()) noexcept : make_(make) {}
  Lazy(const Lazy&) = delete;
  Lazy& operator=(const Lazy&) = delete;

  T& get() {
    if (T* made = made_.load(detail::kFollow)) [[likely]]
      return *made;
    std::call_once(once_, [this] { made_.store(make_(), std::memory_order_release); });
    return *made_.load(std::memory_order_acquire);
  }

 private:
  T* (*const make_)();
  std::atomic<T*> made_{nullptr};
  std::once_flag once_;
};

}  // namespace yard::base
