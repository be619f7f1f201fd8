// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "base/append_list.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "base/thread_state.h"

namespace yard::base {
namespace {

// In order of registration. A fixed table, so that a fork at any moment finds it whole.
constexpr size_t kMostResets = 8;
std::atomic<void (*)()> g_resets[kMostResets];

std::atomic<bool> g_first_use_due{false};
constinit ForkSafeList<FirstUse> g_first_uses;
// Held while one is called or destroyed. Recursive: what is called may end a runtime.
constinit PerProcess<std::recursive_mutex> g_first_use_lock;

// ---- Libraries that are being opened or closed ----

constinit PerProcess<std::recursive_mutex> g_library_lock;
std::atomic<uint64_t> g_forks{0};
std::atomic<int> g_waiting_forks{0};  // opening another library waits for these
thread_local constinit int t_library_locks = 0;
thread_local constinit std::recursive_mutex* t_held_at_fork = nullptr;

constexpr auto kLongestForkWait = std::chrono::seconds(1);
constexpr auto kBetweenTries = std::chrono::microseconds(100);

// Before 2.36 glibc calls the handlers of fork with a lock held that dlclose() takes: waiting for that would only take time.
bool handlers_may_wait() noexcept {
  int major = 0, minor = 0;
  return std::sscanf(::gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 &&
         (major > 2 || minor >= 36);
}

void before_fork() noexcept {
  t_held_at_fork = nullptr;
  try {
    std::recursive_mutex& mutex = g_library_lock.get();
    bool held = mutex.try_lock();
    if (!held && !inside_call() && !InsidePlugin::here() && handlers_may_wait()) {
      g_waiting_forks.fetch_add(1, std::memory_order_relaxed);
      const auto end = std::chrono::steady_clock::now() + kLongestForkWait;
      while (!(held = mutex.try_lock()) && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(kBetweenTries);
      g_waiting_forks.fetch_sub(1, std::memory_order_relaxed);
    }
    if (held) t_held_at_fork = &mutex;
  } catch (const std::bad_alloc&) {  // no library has been opened yet
  }
}

void in_parent() noexcept {
  if (auto* held = std::exchange(t_held_at_fork, nullptr)) held->unlock();
}

void in_child() {
  t_held_at_fork = nullptr;  // the child has a lock of its own
  g_waiting_forks.store(0, std::memory_order_relaxed);
  abandon_other_threads();
  g_forks.fetch_add(1, std::memory_order_relaxed);
  abandon_reclaimer();
  abandon_counters();
  g_first_use_due.store(true, std::memory_order_relaxed);
  for (const auto& reset : g_resets)
    if (auto* call = reset.load(std::memory_order_acquire)) call();
}

}  // namespace

uint64_t forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before_fork, in_parent, in_child); });
}

thread_local constinit int InsidePlugin::t_plugin_depth = 0;

LibraryLock::LibraryLock() : mutex_(g_library_lock.get()) {
  while (t_library_locks == 0 && g_waiting_forks.load(std::memory_order_relaxed) > 0)
    std::this_thread::sleep_for(kBetweenTries);
  mutex_.lock();
  ++t_library_locks;
}

LibraryLock::~LibraryLock() {
  --t_library_locks;
  mutex_.unlock();
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

FirstUse::FirstUse(std::function<void()> then, bool here)
    : then_(std::move(then)), done_in_(this_process()) {
  g_first_uses.add(this);
  if (here) again();
}

void FirstUse::again() noexcept {
  done_in_.store(0, std::memory_order_relaxed);
  g_first_use_due.store(true, std::memory_order_release);
}

void FirstUse::call_once() const {
  const uint32_t here = this_process();
  if (done_in_.exchange(here, std::memory_order_relaxed) != here) then_();
}

FirstUse::~FirstUse() {
  const std::lock_guard lock(g_first_use_lock.get());
  g_first_uses.remove(this);
}

void first_use() noexcept {
  if (!g_first_use_due.load(std::memory_order_relaxed)) return;
  if (!g_first_use_due.exchange(false, std::memory_order_acq_rel)) return;
  const CancellationOff deferred;
  const std::lock_guard lock(g_first_use_lock.get());
  g_first_uses.for_each([](const FirstUse& item) {
    try {
      item.call_once();
    } catch (...) {  // the others are called all the same
      log(LogLevel::kError, "base",
          fmt::format("no background thread could be started: {}", current_exception_text()));
    }
  });
}

}  // namespace yard::base
