// SPDX-License-Identifier: Apache-2.0
// The fork handlers, which wait for libraries that are being opened and take all mutexes.
#include <execinfo.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
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

constinit std::atomic<uint64_t> g_forks{0};

constinit std::atomic<int> g_opening{0};  // threads that open or close a library
constinit std::atomic<int> g_forking{0};  // running forks; opening a library waits for these
thread_local constinit struct { uint16_t opening = 0, foreign = 0; } t_depth;

void pause() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

void wait_for_open_libraries() noexcept {
  g_forking.fetch_add(1);
  if (inside_call() || t_depth.foreign > 0 || t_depth.opening > 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (g_opening.load() > 0 && std::chrono::steady_clock::now() < end) pause();
}

constexpr int kRanks = static_cast<int>(Rank::kLog) + 1;
constexpr int at(Rank rank) noexcept { return static_cast<int>(rank); }

// A thread never holds two mutexes of one rank, so these can share a lock. A fork can take a fixed
// set of locks while threads make and destroy mutexes.
#if defined(YARD_UNDER_TSAN)
constexpr int kBits = 1;  // TSan allows a thread to hold 64 locks
#else
constexpr int kBits = 5;
#endif
struct alignas(64) Lock {
  std::mutex mutex;
};
constinit Lock g_locks[kRanks][1 << kBits];

std::mutex& lock_of(const Mutex& mutex, Rank rank) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(&mutex);
  return g_locks[at(rank)][address * 0x9e3779b97f4a7c15u >> (64 - kBits)].mutex;
}

template <class F>
void for_each_lock_taken_at_fork(const F& f) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (Lock& l : g_locks[rank])
      if (rank != at(Rank::kOutput)) f(l.mutex);
}

constinit std::mutex g_in_child_lock;  // taken after all others
constinit std::vector<InChild*>* g_in_child = nullptr;

void release_all() noexcept {
  g_in_child_lock.unlock();
  for_each_lock_taken_at_fork([](std::mutex& m) { m.unlock(); });
}

// Debug builds check the order of mutexes.
#ifdef NDEBUG
constexpr bool kChecked = false;
#else
constexpr bool kChecked = true;
#endif
thread_local constinit uint32_t t_held = 0;  // a bit for each rank
static_assert(kRanks <= 32);

void check(bool good, const char* problem) noexcept {
  if (!kChecked || good) return;
  std::fprintf(stderr, "yard: %s; this thread holds ranks 0x%x (base/mutex.h)\n", problem, t_held);
  std::abort();
}
void check_none_held() noexcept { check(t_held == 0, "foreign code or fork() under a mutex"); }

void before_fork() noexcept {
  check_none_held();
  wait_for_open_libraries();
  for_each_lock_taken_at_fork([](std::mutex& m) { m.lock(); });
  g_in_child_lock.lock();
}

void in_parent() noexcept { release_all(), g_forking.fetch_sub(1); }

void in_child() {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  g_opening.store(t_depth.opening > 0 ? 1 : 0);
  g_forking.store(0);
  for (Lock& l : g_locks[at(Rank::kOutput)]) std::construct_at(&l.mutex);
  release_all();
  abandon_other_threads();
  restart_reclaimer();
  restart_counters();
  if (g_in_child == nullptr) return;
  // These functions may make other InChild objects, which are not called.
  for (size_t i = 0, count = g_in_child->size(); i < count; ++i) (*g_in_child)[i]->then();
}

constinit std::atomic<bool> g_watching{false};
// An exception that leaves pthread_once needs the unwinder of the C library, which ends the
// process if it cannot be loaded then. Load it now, while there is memory.
[[gnu::constructor]] void load_unwinder() {
  void* here;
  ::backtrace(&here, 1);
}

void watch_forks() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] { pthread_atfork(before_fork, in_parent, in_child); });
  g_watching.store(true, std::memory_order_relaxed);
}

}  // namespace

uint64_t forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

void Mutex::lock() noexcept {
  check(t_held >> at(rank_) == 0, "a mutex is taken out of order");
  if (!g_watching.load(std::memory_order_relaxed)) watch_forks();
  lock_of(*this, rank_).lock();
  if (kChecked) t_held |= 1u << at(rank_);
}

void Mutex::unlock() noexcept {
  if (kChecked) t_held &= ~(1u << at(rank_));
  lock_of(*this, rank_).unlock();
}

void Condition::notify_all() noexcept {
  wakes_.fetch_add(1, std::memory_order_relaxed);
  ::syscall(SYS_futex, &wakes_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool Condition::wait_until(Lock& lock, Time end) noexcept {
  check(std::has_single_bit(t_held), "a thread waits under another mutex");
  const std::chrono::nanoseconds at = end.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(at);
  const timespec until = {whole.count(), (at - whole).count()};
  const uint32_t seen = wakes_.load(std::memory_order_relaxed);
  lock.unlock();
  ::syscall(SYS_futex, &wakes_, FUTEX_WAIT_BITSET_PRIVATE, seen,
            end == Time::max() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  lock.lock();
  return end == Time::max() || std::chrono::steady_clock::now() < end;
}

InChild::InChild(std::function<void()> f) : then(std::move(f)) {
  watch_forks();
  const std::lock_guard lock(g_in_child_lock);
  if (g_in_child == nullptr) g_in_child = new std::vector<InChild*>;
  g_in_child->push_back(this);
}

InChild::~InChild() {
  const std::lock_guard lock(g_in_child_lock);
  std::erase(*g_in_child, this);
}

ForeignCode::ForeignCode() noexcept { check_none_held(), ++t_depth.foreign; }
ForeignCode::~ForeignCode() { --t_depth.foreign; }

OpeningLibrary::OpeningLibrary() noexcept {
  check_none_held();
  if (t_depth.opening++ > 0) return;
  for (;;) {
    g_opening.fetch_add(1);
    if (g_forking.load() == 0) return;
    g_opening.fetch_sub(1);
    while (g_forking.load() > 0) pause();
  }
}
OpeningLibrary::~OpeningLibrary() {
  if (--t_depth.opening == 0) g_opening.fetch_sub(1);
}

}  // namespace yard::base
