// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "base/counters.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"

namespace yard::base {
namespace {

// In order of registration. A fixed table, so that a fork at any moment finds it whole.
constexpr size_t kMostResets = 8;
std::atomic<void (*)()> g_resets[kMostResets];

std::atomic<bool> g_first_use_due{false};
constinit ForkSafeList<FirstUse> g_first_uses;
// Held while one is called or destroyed. Recursive: what is called may end a runtime.
constinit PerProcess<std::recursive_mutex> g_first_use_lock;

void in_child() {
  abandon_other_threads();
  abandon_reclaimer();
  abandon_counters();
  g_first_use_due.store(true, std::memory_order_relaxed);
  for (const auto& reset : g_resets)
    if (auto* call = reset.load(std::memory_order_acquire)) call();
}

}  // namespace

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, in_child); });
}

void at_fork_in_child(void (*reset)()) {
  watch_forks();
  for (auto& place : g_resets) {
    void (*found)() = nullptr;
    if (place.compare_exchange_strong(found, reset, std::memory_order_acq_rel) || found == reset)
      return;
  }
  std::abort();  // a mistake of the library itself: a dropped reset would hang a child
}

FirstUse::FirstUse(std::function<void()> then) : then_(std::move(then)) { g_first_uses.add(this); }

FirstUse::~FirstUse() {
  const std::lock_guard lock(g_first_use_lock.get());
  g_first_uses.remove(this);
}

void first_use() noexcept {
  if (!g_first_use_due.load(std::memory_order_relaxed)) return;
  if (!g_first_use_due.exchange(false, std::memory_order_acq_rel)) return;
  try {
    const std::lock_guard lock(g_first_use_lock.get());
    g_first_uses.for_each([](const FirstUse& item) { item.then_(); });
  } catch (const std::exception& e) {
    log(LogLevel::kError, "base",
        fmt::format("a forked child goes on without its threads: {}", exception_text(e)));
  }
}

}  // namespace yard::base
