// SPDX-License-Identifier: Apache-2.0
// The reclaiming side: the barrier in all threads, the scan, the deferred frees.
#include "base/reclaimer.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

namespace yard::base {
namespace {

std::atomic<bool> g_forced{false};
std::atomic<Reclaimer*> g_reclaimer{nullptr};
std::atomic<uint64_t> g_forks{0};
// Of the calls that a child was born inside of; null in a process that is none. Written by the handler of fork alone.
constinit std::shared_ptr<const std::atomic<bool>> g_inherited;

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

void register_membarrier() noexcept {
  const bool works = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  if (!works) set_reader_fences(true);
}

void barrier_in_all_threads() noexcept {
#if !defined(YARD_UNDER_TSAN)
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Once fences are on they stay on for everybody, except that a test may switch them off again.
  if (reader_fences() && !g_forced.load(std::memory_order_relaxed)) return;
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  // Nobody has registered yet, which readers do before they first read; or the process may not any more.
  register_membarrier();
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

void force_reader_fences(bool on) noexcept {
  g_forced.store(true, std::memory_order_seq_cst);
  set_reader_fences(on);
  // Every reader that has not seen the change is past its barrier once this returns.
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  g_forced.store(false, std::memory_order_seq_cst);
}

Reclaimer& reclaimer() noexcept {
  Reclaimer* r = g_reclaimer.load(std::memory_order_acquire);
  if (r == nullptr) {
    auto* made = new Reclaimer;
    if (g_reclaimer.compare_exchange_strong(r, made, std::memory_order_acq_rel)) return *made;
    delete made;
  }
  return *r;
}

void abandon_reclaimer() noexcept {
  // The old one's lock may be held by a thread that does not exist here: not touched, not freed.
  g_reclaimer.store(new Reclaimer, std::memory_order_release);
  register_membarrier();
  g_forks.fetch_add(1, std::memory_order_relaxed);
  g_inherited = when_calls_end();
}

std::shared_ptr<const std::atomic<bool>> when_calls_end() {
  using Flag = std::shared_ptr<std::atomic<bool>>;
  const auto flag = std::make_shared<std::atomic<bool>>(false);
  barrier_in_all_threads();
  std::vector<const void*> held;
  for_each_hazard([&](const void* p) { held.push_back(p); });
  if (held.empty()) {
    flag->store(true, std::memory_order_relaxed);
    return flag;
  }
  const auto end = [](void* p) {
    const std::unique_ptr<Flag> ended(static_cast<Flag*>(p));
    (*ended)->store(true, std::memory_order_release);
  };
  reclaimer().retire(new Flag(flag), end, std::move(held));
  return flag;
}

uint64_t forks() noexcept { return g_forks.load(std::memory_order_relaxed); }

bool inherited_calls_ended() noexcept {
  if (g_inherited == nullptr || g_inherited->load(std::memory_order_acquire)) return true;
  reclaimer().collect();
  return g_inherited->load(std::memory_order_acquire);
}

void Reclaimer::retire(void* object, void (*free)(void*), std::vector<const void*> held_by) {
  std::lock_guard lock(mutex_);
  retired_.push_back({object, free, std::move(held_by)});
}

size_t Reclaimer::pending() const {
  std::lock_guard lock(mutex_);
  return retired_.size();
}

size_t Reclaimer::collect() {
  for (;;) {
    std::vector<Retired> batch;
    {
      std::lock_guard lock(mutex_);
      batch.swap(retired_);
    }
    if (batch.empty()) return 0;
    barrier_in_all_threads();
    std::vector<const void*> held;
    for_each_hazard([&](const void* p) { held.push_back(p); });
    std::sort(held.begin(), held.end());
    const auto in_use = [&](const Retired& r) {
      return std::any_of(r.held_by.begin(), r.held_by.end(), [&](const void* p) {
        return std::binary_search(held.begin(), held.end(), p);
      });
    };
    const auto free_from = std::partition(batch.begin(), batch.end(), in_use);
    std::vector<Retired> garbage(std::make_move_iterator(free_from),
                                 std::make_move_iterator(batch.end()));
    batch.erase(free_from, batch.end());
    const size_t left = batch.size();
    {
      std::lock_guard lock(mutex_);
      retired_.insert(retired_.end(), std::make_move_iterator(batch.begin()),
                      std::make_move_iterator(batch.end()));
    }
    if (garbage.empty()) return left;
    for (const Retired& r : garbage) r.free(r.object);
  }
}

}  // namespace yard::base
