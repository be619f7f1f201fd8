// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <thread>

#include "base/background.h"
#include "base/fork.h"

namespace yard::runtime {
namespace {

// How long a worker looks for the next job before it sleeps: longer than a model takes between two loops, and not much
// longer than waking a thread does. After the shorter time it lets others have the core between two looks.
constexpr std::chrono::microseconds kSpin(100), kSpinAlone(20);
constexpr int kPauses = 32;  // between two looks at the clock
constexpr int kWakeAtOnce = 2;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr,
            0);
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("isb" : : : "memory");
#endif
}

// Whether `done` holds within the time.
template <class F>
bool spin_until(const F& done) noexcept {
  const auto start = std::chrono::steady_clock::now();
  for (auto now = start; now - start < kSpin; now = std::chrono::steady_clock::now()) {
    for (int i = 0; i < kPauses; ++i) {
      if (done()) return true;
      pause();
    }
    if (now - start > kSpinAlone) ::sched_yield();
  }
  return done();
}

constinit base::PerProcess<WorkerPool> g_pool;
// The same without the system call that g_pool.get() makes; null after a fork.
constinit std::atomic<WorkerPool*> g_known{nullptr};

}  // namespace

WorkerPool& WorkerPool::get() {
  if (WorkerPool* const known = g_known.load(std::memory_order_acquire)) return *known;
  base::at_fork_in_child([] { g_known.store(nullptr, std::memory_order_relaxed); });
  WorkerPool& pool = g_pool.get();
  g_known.store(&pool, std::memory_order_release);
  return pool;
}

int64_t WorkerPool::Job::take(int32_t thread, std::atomic<int64_t>& taken) const noexcept {
  if (pieces >= kBits) return taken.fetch_add(1, std::memory_order_relaxed);
  const auto take_one = [&](int64_t piece) {
    const int64_t bit = int64_t{1} << piece;
    return (taken.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  };
  if (thread < pieces && (taken.load(std::memory_order_relaxed) >> thread & 1) == 0 &&
      take_one(thread))
    return thread;
  for (;;) {
    const int64_t free = all_taken() & ~taken.load(std::memory_order_relaxed);
    if (free == 0) return pieces;
    if (const int64_t first = std::countr_zero(static_cast<uint64_t>(free)); take_one(first))
      return first;
  }
}

WorkerPool::Slot* WorkerPool::take_slot() noexcept {
  for (Slot& s : slots_) {
    uint32_t free = 0;
    if (s.state.load(std::memory_order_relaxed) == 0 &&
        s.state.compare_exchange_strong(free, kTaken, std::memory_order_acquire))
      return &s;
  }
  return nullptr;
}

void WorkerPool::run(Job& job, int32_t helpers) {
  helpers = std::min(helpers, kMostWorkers);
  if (workers_.load(std::memory_order_relaxed) < helpers) grow(helpers);
  Slot* const slot = workers_.load(std::memory_order_relaxed) > 0 ? take_slot() : nullptr;
  if (slot == nullptr) {
    std::atomic<int64_t> taken{1};
    return job.work(0, taken);
  }
  const uint64_t process = base::forks();
  slot->job = &job;
  slot->most.store(helpers, std::memory_order_relaxed);
  slot->taken.store(1, std::memory_order_relaxed);
  slot->all_taken.store(job.all_taken(), std::memory_order_relaxed);
  // Not stored: a worker that comes too late for the slot's last job may be inside for a moment.
  slot->state.fetch_or(kOpen, std::memory_order_release);
  wake(announce(*slot, helpers));
  job.work(0, slot->taken);
  if (base::forks() != process) return;  // a child that has no workers
  wait_until_left(*slot);
}

// Together with wait_for_work(): either the caller sees the worker asleep, or the worker sees the announcement.
WorkerPool::Announcement WorkerPool::announce(const Slot& slot, int32_t helpers) noexcept {
  uint32_t last = announced_.load(std::memory_order_relaxed);
  for (;;) {
    const Announcement a = Announcement::of(Announcement{last}.number() + 1,
                                            static_cast<uint32_t>(&slot - slots_), helpers);
    if (announced_.compare_exchange_weak(last, a.word, std::memory_order_seq_cst)) return a;
  }
}

// Closes the slot as soon as no worker is inside.
void WorkerPool::wait_until_left(Slot& slot) noexcept {
  for (;;) {
    uint32_t now = 0;
    const auto left = [&] {
      now = slot.state.load(std::memory_order_acquire);
      return (now & kInside) == 0;
    };
    if (!spin_until(left)) {
      now = slot.state.fetch_or(kWaiting, std::memory_order_acq_rel) | kWaiting;
      while (!left()) futex_wait(slot.state, now);
    }
    if (slot.state.compare_exchange_strong(now, 0, std::memory_order_acq_rel)) return;
  }
}

void WorkerPool::grow(int32_t to) noexcept {
  const std::unique_lock lock(growing_, std::try_to_lock);
  if (!lock.owns_lock() || no_more_threads_) return;
  const base::SignalsBlocked blocked;  // of new threads
  try {
    for (int32_t n; (n = workers_.load(std::memory_order_relaxed)) < to;) {
      workers_.store(n + 1, std::memory_order_relaxed);  // it counts itself
      std::thread([this, n] { serve(n); }).detach();
    }
  } catch (...) {
    workers_.fetch_sub(1, std::memory_order_relaxed);
    no_more_threads_ = true;
  }
}

void WorkerPool::serve(int32_t worker) {
  pthread_setname_np(pthread_self(), "yard-worker");
  Announcement seen{announced_.load(std::memory_order_relaxed)};
  for (const uint64_t process = base::forks(); base::forks() == process;) {
    const Announcement now{announced_.load(std::memory_order_acquire)};
    // Unless it has seen each announcement, there may be others.
    const bool is_next = now.number() == Announcement::of(seen.number() + 1, 0, 0).number();
    bool helped =
        is_next ? place_of(worker, now.slot()) < now.helpers() && help(slots_[now.slot()], worker)
                : help_any(worker);
    while (helped) helped = help_any(worker);
    seen = now;
    wait_for_work(worker, seen.word);
  }
}

int32_t WorkerPool::place_of(int32_t worker, uint32_t slot) const noexcept {
  const int32_t all = workers_.load(std::memory_order_relaxed), first = first_asked(slot, all);
  return worker >= first ? worker - first : worker - first + all;
}

bool WorkerPool::help_any(int32_t worker) {
  for (Slot& s : slots_) {
    const uint32_t state = s.state.load(std::memory_order_relaxed);
    if ((state & kOpen) != 0 &&
        static_cast<int32_t>(state & kInside) < s.most.load(std::memory_order_relaxed) &&
        s.taken.load(std::memory_order_relaxed) < s.all_taken.load(std::memory_order_relaxed) &&
        help(s, worker))
      return true;
  }
  return false;
}

bool WorkerPool::help(Slot& slot, int32_t worker) {
  const uint32_t before = slot.state.fetch_add(1, std::memory_order_acquire);
  const auto others = static_cast<int32_t>(before & kInside);
  const int32_t most = slot.most.load(std::memory_order_relaxed);
  const bool has_joined = (before & kOpen) != 0 && others < most;
  if (has_joined) {
    const uint64_t process = base::forks();
    const auto number = static_cast<uint32_t>(&slot - slots_);
    if (others + 1 < most) wake(Announcement::of(0, number, most));
    slot.job->work(place_of(worker, number) + 1, slot.taken);
    if (base::forks() != process) return true;  // a child forked by a piece: the caller is not here
  }
  const uint32_t last = slot.state.fetch_sub(1, std::memory_order_acq_rel);
  if ((last & kInside) == 1 && (last & kWaiting) != 0) futex_wake(slot.state);
  return has_joined;
}

void WorkerPool::wait_for_work(int32_t worker, uint32_t seen) noexcept {
  if (spin_until([&] { return announced_.load(std::memory_order_acquire) != seen; })) return;
  std::atomic<uint32_t>& asleep = asleep_[worker];
  asleep.store(1, std::memory_order_seq_cst);
  while (announced_.load(std::memory_order_seq_cst) == seen &&
         asleep.load(std::memory_order_relaxed) == 1)
    futex_wait(asleep, 1);
  asleep.store(0, std::memory_order_relaxed);
}

void WorkerPool::wake(Announcement a) noexcept {
  const int32_t all = workers_.load(std::memory_order_relaxed);
  int woken = 0;
  for (int32_t i = 0, at = first_asked(a.slot(), all);
       i < std::min(a.helpers(), all) && woken < kWakeAtOnce; ++i, at = at + 1 < all ? at + 1 : 0) {
    if (asleep_[at].load(std::memory_order_seq_cst) == 0 || asleep_[at].exchange(0) == 0) continue;
    futex_wake(asleep_[at]);
    ++woken;
  }
}

}  // namespace yard::runtime
