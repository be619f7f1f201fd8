// SPDX-License-Identifier: Apache-2.0
#include "base/reclaimer.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/results.h"

namespace yard::base {
namespace {

using List = std::unique_ptr<Retired>;

void push(List& to, List item) noexcept {
  item->next = std::move(to);
  to = std::move(item);
}
List pop(List& from) noexcept {
  List item = std::move(from);
  from = std::move(item->next);
  return item;
}

struct ProcessReclaimer : Reclaimer {};

constinit std::shared_ptr<const std::atomic<bool>> g_inherited;

std::vector<const void*> hazards() {
  barrier_in_all_threads();
  std::vector<const void*> held;
  for_each_hazard([&](const void* p) { held.push_back(p); });
  return held;
}

}  // namespace

void barrier_in_all_threads() noexcept {
#if !defined(YARD_UNDER_TSAN)
  const auto membarrier = [] {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  };
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Try membarrier even if readers fence now, because a reader may have read earlier that it need
  // not.
  if (membarrier() || reader_fences()) return;
  // No thread has registered yet, or the process may no longer use membarrier.
  register_membarrier();
  membarrier();
#endif
}

Reclaimer& reclaimer() noexcept { return process_wide<ProcessReclaimer>(); }

void restart_reclaimer() noexcept {
  register_membarrier();
  // If memory runs out, the child never frees objects that the parent removed.
  static constexpr std::atomic<bool> kNever{false};
  if (!or_out_of_memory([] { g_inherited = when_calls_end(); }).ok())
    g_inherited = std::shared_ptr<const std::atomic<bool>>(std::shared_ptr<void>(), &kNever);
}

std::shared_ptr<const std::atomic<bool>> when_calls_end() {
  using Flag = std::shared_ptr<std::atomic<bool>>;
  auto held = hazards();
  const auto ended = std::make_shared<std::atomic<bool>>(held.empty());
  const auto end = [](void* p) {
    const std::unique_ptr<Flag> flag(static_cast<Flag*>(p));
    (*flag)->store(true, std::memory_order_release);
  };
  if (!held.empty()) reclaimer().retire(new Flag(ended), end, std::move(held));
  return ended;
}

bool inherited_calls_ended() noexcept {
  if (g_inherited == nullptr || g_inherited->load(std::memory_order_acquire)) return true;
  reclaimer().collect();
  return g_inherited->load(std::memory_order_acquire);
}

void Reclaimer::retire(std::unique_ptr<Retired> made) noexcept {
  const std::lock_guard lock(mutex_);
  push(retired_, std::move(made));
}

void Reclaimer::retire(void* object, void (*free)(void*), std::vector<const void*> held_by) {
  retire(std::make_unique<Retired>(Retired{object, free, std::move(held_by)}));
}

size_t Reclaimer::pending() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const Retired* r = retired_.get(); r != nullptr; r = r->next.get()) ++count;
  return count;
}

size_t Reclaimer::collect() noexcept {
  for (;;) {
    List batch;  // oldest first
    {
      const std::lock_guard lock(mutex_);
      while (retired_ != nullptr) push(batch, pop(retired_));
    }
    if (batch == nullptr) return 0;
    std::vector<const void*> held;
    const bool known = or_out_of_memory([&] { held = hazards(); }).ok();
    std::ranges::sort(held);
    const auto in_use = [&](const void* p) { return std::ranges::binary_search(held, p); };
    size_t left = 0;
    bool freed = false;
    while (batch != nullptr) {
      List item = pop(batch);
      if (!known || std::ranges::any_of(item->held_by, in_use)) {
        retire(std::move(item));
        ++left;
      } else {
        item->free(item->object);
        freed = true;
      }
    }
    if (!freed) return left;
  }
}

}  // namespace yard::base
