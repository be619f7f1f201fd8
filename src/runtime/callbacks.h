// SPDX-License-Identifier: Apache-2.0
// Functions of the program that threads of the runtime call, and that may be removed at any time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fork.h"

namespace yard::runtime {

// A function, and which thread is running it: one at a time, which may enter it again. No lock is held meanwhile.
template <class F>
class Callback {
 public:
  explicit Callback(F f) : call(std::move(f)) {}
  const F call;

  // Waits for a run of another thread. False if it has been removed.
  bool begin() {
    std::unique_lock hold(lock_);
    ended_.wait(hold, [&] { return inside_ == 0 || is_here(); });
    if (removed_) return false;
    ++inside_;
    runner_ = std::this_thread::get_id();
    return true;
  }
  // True if it was removed meanwhile, and this was its last run.
  bool end() {
    const std::lock_guard hold(lock_);
    if (--inside_ > 0) return false;
    ended_.notify_all();
    return removed_;
  }
  // Waits for a run, unless that is on this thread: then end() returns true. True if there is none.
  bool remove() {
    std::unique_lock hold(lock_);
    removed_ = true;
    if (inside_ > 0 && is_here()) return false;
    ended_.wait(hold, [&] { return inside_ == 0; });
    return true;
  }
  bool removed() const noexcept { return removed_; }

 private:
  bool is_here() const noexcept { return runner_ == std::this_thread::get_id(); }
  std::mutex lock_;  // held for a few instructions; the rest is under it
  std::condition_variable ended_;
  std::thread::id runner_;
  int inside_ = 0;
  bool removed_ = false;
};
template <class F>
using Callbacks = std::map<uint64_t, std::shared_ptr<Callback<F>>>;

// The same functions for a forked child, with locks of their own: another thread may have held the parent's.
template <class F>
Callbacks<F> inherited(const Callbacks<F>& parents) {
  Callbacks<F> to;
  for (const auto& [id, c] : parents)
    if (!c->removed()) to[id] = std::make_shared<Callback<F>>(c->call);
  return to;
}

// When this returns, the function is not called again, and is not running unless on this thread. `lock` guards `from`.
template <class Lock, class F>
void remove_callback(Lock& lock, Callbacks<F>& from, uint64_t id) {
  std::shared_ptr<Callback<F>> found;
  {
    const std::lock_guard hold(lock);
    const auto it = from.find(id);
    if (it == from.end()) return;
    found = it->second;
  }
  if (!found->remove())
    return;  // it removes itself: it stays until it ends, so that others can wait for it
  const std::lock_guard hold(lock);
  from.erase(id);
}

// Calls f(function) for each of `all`, a copy of `from`, that has not been removed meanwhile. f does not throw.
template <class Lock, class F, class Do>
void for_each_callback(Lock& lock, Callbacks<F>& from, const Callbacks<F>& all, const Do& f) {
  for (const auto& [id, c] : all) {
    if (!c->begin()) continue;
    const uint64_t process = base::forks();
    f(c->call);
    if (base::forks() != process) continue;  // a child that it forked: the locks are its parent's
    if (!c->end()) continue;
    const std::lock_guard hold(lock);
    from.erase(id);
  }
}

}  // namespace yard::runtime
