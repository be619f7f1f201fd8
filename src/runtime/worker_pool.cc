// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>

#include "base/background.h"
#include "base/fork.h"

namespace yard::runtime {
namespace {

// How long a worker looks for the next job before it sleeps: longer than a model takes between two loops, and not much
// longer than waking a thread does.
constexpr std::chrono::microseconds kSpin(100);
constexpr int kPauses = 32;  // between two looks at the clock
constexpr uint32_t kWakeAtOnce = 2;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word, uint32_t count) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
            nullptr, 0);
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
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPauses; ++i) {
      if (done()) return true;
      pause();
    }
    ::sched_yield();  // others may need the core
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

constinit base::PerProcess<WorkerPool> g_pool;

}  // namespace

WorkerPool& WorkerPool::get() { return g_pool.get(); }

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
  if (workers_.load(std::memory_order_relaxed) < helpers) grow(helpers);
  Slot* const slot = workers_.load(std::memory_order_relaxed) > 0 ? take_slot() : nullptr;
  if (slot == nullptr) return job.work();
  const uint64_t process = base::forks();
  slot->job = &job;
  slot->most.store(static_cast<uint32_t>(helpers), std::memory_order_relaxed);
  slot->state.store(kTaken | kOpen, std::memory_order_release);
  // Together with wait_for_work(): either this sees the worker asleep, or the worker sees the epoch.
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  wake(std::min(kWakeAtOnce, static_cast<uint32_t>(helpers)));
  job.work();
  if (base::forks() != process) return;  // a child that has no workers
  slot->state.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_until_left(*slot);
  slot->state.store(0, std::memory_order_release);
}

void WorkerPool::wait_until_left(Slot& slot) noexcept {
  const auto left = [&] { return (slot.state.load(std::memory_order_acquire) & kInside) == 0; };
  if (spin_until(left)) return;
  slot.state.fetch_or(kWaiting, std::memory_order_acq_rel);
  for (uint32_t now; ((now = slot.state.load(std::memory_order_acquire)) & kInside) != 0;)
    futex_wait(slot.state, now);
}

void WorkerPool::grow(int32_t to) noexcept {
  const std::unique_lock lock(growing_, std::try_to_lock);
  if (!lock.owns_lock() || no_more_threads_) return;
  to = std::min(to, kMostWorkers);
  const base::SignalsBlocked blocked;  // of new threads
  try {
    while (workers_.load(std::memory_order_relaxed) < to) {
      std::thread([this] { serve(); }).detach();
      workers_.fetch_add(1, std::memory_order_relaxed);
    }
  } catch (...) {
    no_more_threads_ = true;
  }
}

void WorkerPool::serve() {
  pthread_setname_np(pthread_self(), "yard-worker");
  for (const uint64_t process = base::forks(); base::forks() == process;) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (!help_any()) wait_for_work(seen);
  }
}

bool WorkerPool::help_any() {
  for (Slot& s : slots_)
    if ((s.state.load(std::memory_order_relaxed) & kOpen) != 0 && help(s)) return true;
  return false;
}

bool WorkerPool::help(Slot& slot) {
  uint32_t state = slot.state.load(std::memory_order_relaxed);
  do {
    if ((state & kOpen) == 0) return false;
    if ((state & kInside) >= slot.most.load(std::memory_order_relaxed)) return false;
  } while (!slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  if ((state & kInside) + 1 < slot.most.load(std::memory_order_relaxed)) wake(kWakeAtOnce);
  const uint64_t process = base::forks();
  slot.job->work();
  if (base::forks() != process) return true;  // a child forked by a piece: the caller is not here
  slot.state.fetch_and(~kOpen, std::memory_order_relaxed);  // nothing is left to begin
  const uint32_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kInside) == 1 && (before & kWaiting) != 0) futex_wake(slot.state, 1);
  return true;
}

void WorkerPool::wait_for_work(uint32_t seen) noexcept {
  if (spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; })) return;
  asleep_.fetch_add(1, std::memory_order_seq_cst);
  if (epoch_.load(std::memory_order_seq_cst) == seen) futex_wait(epoch_, seen);
  asleep_.fetch_sub(1, std::memory_order_relaxed);
}

void WorkerPool::wake(uint32_t count) noexcept {
  if (asleep_.load(std::memory_order_seq_cst) > 0) futex_wake(epoch_, count);
}

}  // namespace yard::runtime
