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

std::atomic<uint64_t> g_forks{0};
std::atomic<int> g_opening{0};  // threads that open or close a library
std::atomic<int> g_forking{0};  // forks under way; opening a library waits for these
thread_local constinit struct { uint16_t opening = 0, foreign = 0; } t_depth;

constexpr auto kLongestForkWait = std::chrono::seconds(1);
constexpr auto kBetweenTries = std::chrono::microseconds(100);

// Before 2.36 glibc calls the handlers of fork with a lock held that dlclose() takes: waiting for that would only take time.
bool handlers_may_wait() noexcept {
  int major = 0, minor = 0;
  return std::sscanf(::gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 &&
         (major > 2 || minor >= 36);
}

void wait_for_open_libraries() noexcept {
  g_forking.fetch_add(1);
  if (inside_call() || t_depth.foreign > 0 || t_depth.opening > 0 || !handlers_may_wait()) return;
  const auto end = std::chrono::steady_clock::now() + kLongestForkWait;
  while (g_opening.load() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kBetweenTries);
}

// ---- All mutexes ----

using locks::Lock;
using locks::Signal;

// Taken after all others. Protects the lists below; locks are pushed in front, and can be walked through without it.
constinit std::mutex g_lists;
constinit std::atomic<Lock*> g_locks[kRanks];
constinit Lock* g_free_locks[kRanks];
constinit Signal *g_signals = nullptr, *g_free_signals = nullptr;
constinit InChild *g_first_in_child = nullptr, *g_last_in_child = nullptr;

constinit std::mutex g_one_fork;  // one thread at a time takes all mutexes

template <class F>
void for_each_lock(const F& f) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (Lock* l = g_locks[rank].load(std::memory_order_acquire); l != nullptr; l = l->next)
      f(*l, static_cast<Rank>(rank));
}

void release_all() noexcept {
  for_each_lock([](Lock& l, Rank) {
    if (std::exchange(l.taken, false)) l.mutex.unlock();
  });
}

void take_all() noexcept {
  for (;;) {
    for_each_lock([](Lock& l, Rank rank) {
      if (!is_taken_at_fork(rank)) return;
      l.mutex.lock();
      l.taken = true;
    });
    g_lists.lock();
    bool all = true;  // unless another thread has made a mutex meanwhile
    for_each_lock([&](const Lock& l, Rank rank) { all &= l.taken || !is_taken_at_fork(rank); });
    if (all) return;
    g_lists.unlock();
    release_all();
  }
}

// ---- The handlers ----

void before_fork() noexcept {
  assert_no_lock_held();
  wait_for_open_libraries();
  g_one_fork.lock();
  take_all();
}

void in_parent() noexcept {
  g_lists.unlock();
  release_all();
  g_one_fork.unlock();
  g_forking.fetch_sub(1);
}

}  // namespace

struct ForkHandler {
  static void call_all() {
    const InChild* const last = g_last_in_child;  // these functions may make others
    for (const InChild* c = g_first_in_child; c != nullptr; c = c == last ? nullptr : c->after_)
      c->then_();
  }
};

namespace {

void in_child() {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  g_opening.store(t_depth.opening > 0 ? 1 : 0);
  g_forking.store(0);
  // A condition on which a thread of the parent waits can neither be used nor destroyed here.
  for (Signal* s = g_signals; s != nullptr; s = s->next) std::construct_at(&s->condition);
  for_each_lock([](Lock& l, Rank rank) {
    if (!is_taken_at_fork(rank)) std::construct_at(&l.mutex);
  });
  g_lists.unlock();
  release_all();
  g_one_fork.unlock();
  abandon_other_threads();
  restart_reclaimer();
  restart_counters();
  g_first_use_due.store(true, std::memory_order_relaxed);
  for (const auto& reset : g_resets)
    if (auto* call = reset.load(std::memory_order_acquire)) call();
  ForkHandler::call_all();
}

}  // namespace

uint64_t forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before_fork, in_parent, in_child); });
}

namespace locks {
namespace {

// Gives `place` an item, from `free` if there is one; else one that `list` makes known.
template <class Item, class List>
Item& acquire(std::atomic<Item*>& place, Item*& free, List& list) {
  watch_forks();
  std::unique_lock lock(g_lists);
  Item* mine = free;
  if (mine != nullptr) {
    free = mine->next_free;
  } else {
    lock.unlock();
    mine = new Item;
    lock.lock();
    mine->next = list;
    list = mine;
  }
  Item* found = nullptr;
  if (place.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return *mine;
  mine->next_free = std::exchange(free, mine);
  return *found;
}

template <class Item>
void free_again(Item& item, Item*& free) noexcept {
  const std::lock_guard lock(g_lists);
  item.next_free = std::exchange(free, &item);
}

}  // namespace

Lock& acquire_lock(std::atomic<Lock*>& place, Rank rank) {
  const auto at = static_cast<size_t>(rank);
  return acquire(place, g_free_locks[at], g_locks[at]);
}
void give_back(Lock& lock, Rank rank) noexcept {
  free_again(lock, g_free_locks[static_cast<size_t>(rank)]);
}
Signal& acquire_signal(std::atomic<Signal*>& place) {
  return acquire(place, g_free_signals, g_signals);
}
void give_back(Signal& signal) noexcept { free_again(signal, g_free_signals); }

#ifndef NDEBUG
namespace {

thread_local constinit uint32_t t_held = 0;  // a bit for each rank
static_assert(kRanks <= 32);

[[noreturn]] void fail(const char* what, int rank) noexcept {
  std::fprintf(stderr, "yard: %s (rank %d); this thread holds ranks 0x%x (base/mutex.h)\n", what,
               rank, t_held);
  std::abort();
}

}  // namespace

void check_order(Rank rank) noexcept {
  const int at = static_cast<int>(rank);
  if (t_held >> at != 0) fail("a mutex is taken out of order", at);
}
void note_locked(Rank rank) noexcept { t_held |= 1u << static_cast<int>(rank); }
void note_unlocked(Rank rank) noexcept { t_held &= ~(1u << static_cast<int>(rank)); }
#endif

}  // namespace locks

#ifndef NDEBUG
void assert_no_lock_held() noexcept {
  if (locks::t_held != 0) locks::fail("foreign code or fork() under a mutex", -1);
}
#endif

InChild::InChild(std::function<void()> then) : then_(std::move(then)) {
  watch_forks();
  const std::lock_guard lock(g_lists);
  before_ = std::exchange(g_last_in_child, this);
  (before_ != nullptr ? before_->after_ : g_first_in_child) = this;
}

InChild::~InChild() {
  const std::lock_guard lock(g_lists);
  (before_ != nullptr ? before_->after_ : g_first_in_child) = after_;
  (after_ != nullptr ? after_->before_ : g_last_in_child) = before_;
}

ForeignCode::ForeignCode() noexcept {
  assert_no_lock_held();
  ++t_depth.foreign;
}
ForeignCode::~ForeignCode() { --t_depth.foreign; }

OpeningLibrary::OpeningLibrary() noexcept {
  assert_no_lock_held();
  if (t_depth.opening++ > 0) return;
  for (;;) {
    g_opening.fetch_add(1);
    if (g_forking.load() == 0) return;
    g_opening.fetch_sub(1);
    while (g_forking.load() > 0) std::this_thread::sleep_for(kBetweenTries);
  }
}
OpeningLibrary::~OpeningLibrary() {
  if (--t_depth.opening == 0) g_opening.fetch_sub(1);
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
