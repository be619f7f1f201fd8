// SPDX-License-Identifier: Apache-2.0
// Functions of the program that threads of the runtime call, and that may be removed at any time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace yard::runtime {

template <class F>
struct Callback {
  explicit Callback(F f) : call(std::move(f)) {}
  const F call;
  std::recursive_mutex running;  // it may remove itself
  int inside = 0;                // under that lock
  bool removed = false;          // under that lock
};
template <class F>
using Callbacks = std::map<uint64_t, std::shared_ptr<Callback<F>>>;

// The same functions for a forked child, with locks of their own: another thread may have held the parent's.
template <class F>
Callbacks<F> inherited(const Callbacks<F>& parents) {
  Callbacks<F> to;
  for (const auto& [id, c] : parents)
    if (!c->removed) to[id] = std::make_shared<Callback<F>>(c->call);
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
  const std::lock_guard running(found->running);
  found->removed = true;
  if (found->inside > 0)
    return;  // it removes itself: it stays until it ends, so that others can wait for it
  const std::lock_guard hold(lock);
  from.erase(id);
}

// Calls f(function) for each of `all`, a copy of `from`, that has not been removed meanwhile. f does not throw.
template <class Lock, class F, class Do>
void for_each_callback(Lock& lock, Callbacks<F>& from, const Callbacks<F>& all, const Do& f) {
  for (const auto& [id, c] : all) {
    const std::lock_guard running(c->running);
    if (c->removed) continue;
    ++c->inside;
    f(c->call);
    if (--c->inside > 0 || !c->removed) continue;
    const std::lock_guard hold(lock);
    from.erase(id);
  }
}

}  // namespace yard::runtime
