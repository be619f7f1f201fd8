// SPDX-License-Identifier: Apache-2.0
// Functions of the program that threads of the runtime call. They may be removed at any time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"

namespace yard::rules {

// Validators and listeners share their ids, because one function removes both.
inline std::atomic<uint64_t> g_last_callback{0};

// All functions are thread-safe. No lock is held while a callback runs.
template <class F>
class Callbacks {
 public:
  uint64_t add(F f) {
    auto made = std::make_shared<Callback>(g_last_callback.fetch_add(1) + 1, std::move(f));
    const std::lock_guard hold(lock_);
    return all_.emplace_back(std::move(made))->id;
  }

  // Waits until the callback returns, unless it runs on this thread. It is not called again.
  void remove(uint64_t id) {
    std::shared_ptr<Callback> found;  // declared first, so that it is freed without the lock
    std::unique_lock hold(lock_);
    const auto it = std::ranges::find(all_, id, [](const auto& c) { return c->id; });
    if (it == all_.end()) return;
    found = *it;
    found->removed = true;
    ended_.wait(hold, [&] { return found->is_idle() || found->is_here(); });
    // A callback that removes itself stays here until it returns, so that others can wait for it.
    if (found->is_idle()) std::erase(all_, found);
  }

  bool empty() {
    const std::lock_guard hold(lock_);
    return all_.empty();
  }

  // Logs exceptions of callbacks.
  void call_all(base::Logger logger, const char* name, const auto& event) {
    for_each([&](const F& call) {
      try {
        call(event);
      } catch (...) {
        base::log(LogLevel::kError, logger,
                  fmt::format("{} threw: {}", name, base::current_exception_text()));
      }
    });
  }

  // A callback runs on one thread at a time. It may call this function again.
  template <class Do>
  void for_each(const Do& f) {
    std::vector<std::shared_ptr<Callback>> all;  // declared first, so freed without the lock
    std::unique_lock hold(lock_);
    all = all_;
    for (const std::shared_ptr<Callback>& c : all) {
      ended_.wait(hold, [&] { return c->is_idle() || c->is_here(); });
      if (c->removed) continue;
      const Leave leave{*this, hold, c, std::exchange(c->runner, std::this_thread::get_id())};
      hold.unlock();
      const base::ForeignCode inside;
      f(c->call);
    }
  }

 private:
  struct Callback {
    Callback(uint64_t i, F f) : id(i), call(std::move(f)) {}
    bool is_idle() const noexcept { return runner == std::thread::id(); }
    bool is_here() const noexcept { return runner == std::this_thread::get_id(); }
    const uint64_t id;
    const F call;
    std::thread::id runner;  // the thread that runs it
    bool removed = false;
  };
  struct Leave {
    Callbacks& of;
    std::unique_lock<base::Mutex>& hold;
    const std::shared_ptr<Callback>& from;
    const std::thread::id outer;
    ~Leave() {
      hold.lock();
      from->runner = outer;
      if (from->is_idle() && from->removed) std::erase(of.all_, from);
      of.ended_.notify_all();
    }
  };
  base::Mutex lock_{base::Rank::kRules};
  base::Condition ended_;
  std::vector<std::shared_ptr<Callback>> all_;
  base::InChild in_child_{[this] {
    for (const auto& c : all_)
      if (!c->is_here()) c->runner = {};
  }};
};

}  // namespace yard::rules
