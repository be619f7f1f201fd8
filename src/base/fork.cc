// SPDX-License-Identifier: Apache-2.0
// The handlers of fork: they wait for libraries that are being opened, take all mutexes and give them back.
#include <gnu/libc-version.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "base/reclaimer.h"

namespace yard::base {
namespace {

std::atomic<uint64_t> g_forks{0};

// ---- Libraries that are being opened or closed ----

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

constexpr int kRanks = static_cast<int>(Rank::kLog) + 1;
constexpr int at(Rank rank) noexcept { return static_cast<int>(rank); }

constinit std::mutex g_one_fork;  // one thread at a time takes all mutexes
// Taken after all mutexes. Protects the following; g_locks grow in front and can be walked through without it.
constinit std::mutex g_lists;
constinit std::atomic<Lock*> g_locks[kRanks];
constinit Lock* g_free_locks[kRanks];
constinit std::vector<InChild*>* g_in_child = nullptr;

template <class F>
void for_each_lock(const F& f) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (Lock* l = g_locks[rank].load(std::memory_order_acquire); l != nullptr; l = l->next)
      f(*l, rank == at(Rank::kOutput));
}

void release_all() noexcept {
  for_each_lock([](Lock& l, bool) {
    if (std::exchange(l.taken, false)) l.mutex.unlock();
  });
}

void take_all() noexcept {
  for (bool all = false; !all;) {
    for_each_lock([](Lock& l, bool is_output) {
      if (is_output) return;
      l.mutex.lock();
      l.taken = true;
    });
    g_lists.lock();
    all = true;  // unless another thread has made a mutex meanwhile
    for_each_lock([&](const Lock& l, bool is_output) { all &= l.taken || is_output; });
    if (all) return;
    g_lists.unlock();
    release_all();
  }
}

// ---- The order of mutexes ----

#ifndef NDEBUG
thread_local constinit uint32_t t_held = 0;  // a bit for each rank
static_assert(kRanks <= 32);

[[noreturn]] void fail(const char* what, int rank) noexcept {
  std::fprintf(stderr, "yard: %s (rank %d); this thread holds ranks 0x%x (base/mutex.h)\n", what,
               rank, t_held);
  std::abort();
}
void check_order(Rank rank) noexcept {
  if (t_held >> at(rank) != 0) fail("a mutex is taken out of order", at(rank));
}
void note_held(Rank rank, bool held) noexcept {
  t_held = (t_held & ~(1u << at(rank))) | uint32_t{held} << at(rank);
}
void check_none_held() noexcept {
  if (t_held != 0) fail("foreign code or fork() under a mutex", -1);
}
#else
void check_order(Rank) noexcept {}
void note_held(Rank, bool) noexcept {}
void check_none_held() noexcept {}
#endif

// ---- The handlers ----

void before_fork() noexcept {
  check_none_held();
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

void in_child() {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  g_opening.store(t_depth.opening > 0 ? 1 : 0);
  g_forking.store(0);
  for_each_lock([](Lock& l, bool is_output) {
    if (is_output) std::construct_at(&l.mutex);
  });
  g_lists.unlock();
  release_all();
  g_one_fork.unlock();
  abandon_other_threads();
  restart_reclaimer();
  restart_counters();
  // These functions may make others, which are not called.
  const size_t count = g_in_child != nullptr ? g_in_child->size() : 0;
  for (size_t i = 0; i < count; ++i) (*g_in_child)[i]->then();
}

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before_fork, in_parent, in_child); });
}

// Gives `place` a lock, unless another thread does.
Lock& acquire(std::atomic<Lock*>& place, Rank rank) {
  watch_forks();
  Lock*& free = g_free_locks[at(rank)];
  std::unique_lock lock(g_lists);
  Lock* mine = free;
  if (mine != nullptr) {
    free = mine->next_free;
  } else {
    lock.unlock();
    mine = new Lock;
    lock.lock();
    mine->next = g_locks[at(rank)].load(std::memory_order_relaxed);
    g_locks[at(rank)].store(mine, std::memory_order_release);
  }
  Lock* found = nullptr;
  if (place.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return *mine;
  mine->next_free = std::exchange(free, mine);
  return *found;
}

}  // namespace

uint64_t forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void StaticMutex::lock() {
  check_order(rank_);
  Lock* const lock = lock_.load(std::memory_order_acquire);
  (lock != nullptr ? *lock : acquire(lock_, rank_)).mutex.lock();
  note_held(rank_, true);
}

void StaticMutex::unlock() noexcept {
  note_held(rank_, false);
  lock_.load(std::memory_order_relaxed)->mutex.unlock();
}

void StaticMutex::give_back() noexcept {
  Lock* const mine = lock_.load(std::memory_order_acquire);
  if (mine == nullptr) return;
  const std::lock_guard lock(g_lists);
  mine->next_free = std::exchange(g_free_locks[at(rank_)], mine);
}

void Condition::notify_all() noexcept {
  wakes_.fetch_add(1, std::memory_order_relaxed);
  ::syscall(SYS_futex, &wakes_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool Condition::sleep(uint32_t seen, Time end) noexcept {
  using std::chrono::nanoseconds, std::chrono::seconds;
  const nanoseconds at = end.time_since_epoch();
  const auto whole = std::chrono::duration_cast<seconds>(at);
  const timespec until = {whole.count(), static_cast<long>((at - whole).count())};
  ::syscall(SYS_futex, &wakes_, FUTEX_WAIT_BITSET_PRIVATE, seen,
            end == Time::max() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return end == Time::max() || std::chrono::steady_clock::now() < end;
}

InChild::InChild(std::function<void()> f) : then(std::move(f)) {
  watch_forks();
  const std::lock_guard lock(g_lists);
  if (g_in_child == nullptr) g_in_child = new std::vector<InChild*>;
  g_in_child->push_back(this);
}

InChild::~InChild() {
  const std::lock_guard lock(g_lists);
  std::erase(*g_in_child, this);
}

ForeignCode::ForeignCode() noexcept {
  check_none_held();
  ++t_depth.foreign;
}
ForeignCode::~ForeignCode() { --t_depth.foreign; }

OpeningLibrary::OpeningLibrary() noexcept {
  check_none_held();
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

}  // namespace yard::base
