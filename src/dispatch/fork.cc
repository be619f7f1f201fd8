// SPDX-License-Identifier: Apache-2.0
// What happens in a forked child.
#include "dispatch/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "base/first_use.h"
#include "base/reclaimer.h"
#include "dispatch/core.h"
#include "dispatch/memo.h"
#include "telemetry/counters.h"

namespace yard::dispatch {
namespace {

// Nodes are used again, never freed.
struct CoreNode {
  std::atomic<detail::Core*> core{nullptr};
  CoreNode* next = nullptr;
};
std::atomic<CoreNode*> g_cores{nullptr};

// Only the forking thread is left, and nothing can run beside it.
void in_child() {
  base::abandon_other_threads();
  base::abandon_reclaimer();
  telemetry::abandon_counters();
  forget_memos();
  base::expect_first_use();
  for (CoreNode* n = g_cores.load(std::memory_order_acquire); n != nullptr; n = n->next)
    if (detail::Core* core = n->core.load(std::memory_order_acquire)) core->abandon_root();
}

}  // namespace

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, in_child); });
}

void add_core(detail::Core* core) {
  for (CoreNode* n = g_cores.load(std::memory_order_acquire); n != nullptr; n = n->next) {
    detail::Core* expected = nullptr;
    if (n->core.compare_exchange_strong(expected, core, std::memory_order_acq_rel)) return;
  }
  auto* n = new CoreNode;
  n->core.store(core, std::memory_order_relaxed);
  n->next = g_cores.load(std::memory_order_relaxed);
  while (!g_cores.compare_exchange_weak(n->next, n, std::memory_order_release)) {
  }
}

void remove_core(detail::Core* core) {
  for (CoreNode* n = g_cores.load(std::memory_order_acquire); n != nullptr; n = n->next)
    if (n->core.load(std::memory_order_relaxed) == core)
      n->core.store(nullptr, std::memory_order_release);
}

}  // namespace yard::dispatch

namespace yard::detail {

void Core::abandon_root() noexcept {
  // The old root's locks may be held by threads that do not exist here: left behind, not freed.
  auto* fresh = new Root;
  const Snapshot* last = current.load(std::memory_order_acquire);
  fresh->owner = last->shared_from_this();
  fresh->inherited = last->state;
  // What a thread was changing that does not exist here can be neither used nor taken apart.
  if (last->being_edited()) fresh->left_behind = fresh->owner;
  root_.store(fresh, std::memory_order_release);
  // A snapshot of our own: entries whose plan table was being changed, or whose kernels cannot survive a
  // fork, are recreated; overlays start empty. The old snapshot stays for calls this thread is inside of.
  auto next = Snapshot::make();
  next->generation = last->generation + 1;
  next->state = last->state;
  next->policy = last->policy;
  if (next->policy->observer != nullptr) next->policy->observer->forked();
  // Rules in rollout are the parent's matter: the child has nobody who would end it.
  if (next->policy->rollout != nullptr) {
    auto without = std::make_shared<policy::ProcessPolicy>(*next->policy);
    without->rollout = nullptr;
    next->policy = std::move(without);
  }
  next->forked = true;
  board.abandon();
  next->health = board.snapshot();
  std::vector<std::shared_ptr<Entry>> entries = last->owners();
  for (auto& entry : entries) {
    if (entry == nullptr) continue;
    bool unsafe = entry->being_edited() || entry->candidates().settings().health != nullptr ||
                  entry->candidates().settings().rollout != nullptr;
    for (const select::KernelCandidate& c : entry->candidates().all())
      unsafe |= (c.kernel->backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0;
    if (!unsafe) continue;
    select::OpSettings settings = entry->candidates().settings();
    settings.health = nullptr;  // breakers restart
    if (std::exchange(settings.rollout, nullptr) != nullptr)
      settings.watched = settings.observer != nullptr;
    entry = Entry::make(
        select::CandidateSet::make(next->state->op_records.find(entry->name())->second,
                                   next->policy->in_force, {}, {host, true}, std::move(settings)),
        next->generation, version(entry->candidates().op_record().op->index), entry.get());
  }
  next->set_entries(std::move(entries));
  generation_ = next->generation;
  const auto before = std::exchange(fresh->owner, std::move(next));
  current.store(fresh->owner.get(), std::memory_order_release);
  renew_memos(last, *fresh->owner);
  if (const auto* call = in_child.load(std::memory_order_acquire)) (*call)();
}

}  // namespace yard::detail
