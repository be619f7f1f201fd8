// SPDX-License-Identifier: Apache-2.0
// What calls see: the current snapshot and the versions that memos compare; and how both change.
//
// A change builds the next snapshot, holding no lock that others need, and publishes it by one store if the snapshot that
// it started from is still the current one; else it starts again. It waits for no call, and no call waits for it. Probes,
// verifiers, cost hints and log sinks run while it builds: threads that they wait for may make changes, too.
#pragma once

#include <yard/registry.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fork.h"
#include "base/reclaimer.h"
#include "dispatch/snapshot.h"
#include "registry/changes.h"

namespace yard::detail {
class Core;
}

namespace yard::dispatch {

// One T for each op index, at an address that stays for the life of the table. Any thread; grows without a lock.
template <class T>
class ByIndex {
 public:
  ByIndex() = default;
  ~ByIndex() {
    for (Chunk* c = first_.next.load(std::memory_order_acquire); c != nullptr;)
      delete std::exchange(c, c->next.load(std::memory_order_acquire));
  }
  ByIndex(const ByIndex&) = delete;
  ByIndex& operator=(const ByIndex&) = delete;

  T& operator[](uint32_t index) const {
    return index < Chunk::kCount ? first_.of[index] : beyond_first(index);
  }

 private:
  struct Chunk {
    static constexpr uint32_t kCount = 256;
    T of[kCount]{};
    std::atomic<Chunk*> next{nullptr};
  };
  [[gnu::noinline]] T& beyond_first(uint32_t index) const {
    Chunk* at = &first_;
    for (; index >= Chunk::kCount; index -= Chunk::kCount) {
      Chunk* next = at->next.load(std::memory_order_acquire);
      if (next == nullptr) {
        auto* made = new Chunk;
        if (at->next.compare_exchange_strong(next, made, std::memory_order_acq_rel))
          next = made;
        else
          delete made;
      }
      at = next;
    }
    return at->of[index];
  }
  mutable Chunk first_;
};

class PublishedState {
 public:
  // `reads_environment`: the environment variables that backends chose as their switches count.
  PublishedState(Core& core, bool reads_environment);
  ~PublishedState();
  PublishedState(const PublishedState&) = delete;
  PublishedState& operator=(const PublishedState&) = delete;

  // ---- Read by every call ----
  std::atomic<const Snapshot*> current{nullptr};
  // What memos and handles of an op's calls compare. It is suspended before `current` changes and renewed before the old snapshot is
  // retired: a thread that holds the entry and then finds the version unchanged holds it in time. The address stays
  // for the life of the core.
  MemoVersion& version(uint32_t index) const { return versions_[index]; }
  // The same for calls in scopes and with options, of all ops: their entries live in the snapshot.
  mutable MemoVersion overlays_version;

  // The current snapshot, held by reference.
  std::shared_ptr<const Snapshot> snapshot() const;

  // ---- Changes: any thread, outside of selections ----
  // All steps or none.
  Result<Ticket> apply(const std::vector<registry::Step>& steps);
  // These steps from an empty registry, without the policy and static map that were set; indices stay taken. One snapshot.
  Status start_over(const std::vector<registry::Step>& steps);
  // Publishes the policy of the process as `change` leaves it; an error of `change` publishes nothing. It is called again
  // if another change came first.
  using PolicyChange = std::function<Status(const registry::State&, policy::ProcessPolicy&)>;
  Status edit_policy(const PolicyChange& change);
  // Publishes `next` instead of `old` among the observers of every call. Either may be null.
  Status replace_observer(const std::shared_ptr<registry::CallObserver>& old,
                          const std::shared_ptr<registry::CallObserver>& next);
  // Does what a change had to leave undone for lack of memory, if there is something.
  void follow_if_behind();
  // Plans every op again: the device features that the program states have changed.
  Status replan_all();
  // Publishes the current state of the health board.
  Status publish_health();
  // When this returns, CoreServices::on_change() has run for the current snapshot, whichever thread published it.
  void catch_up();

  // In the fork handler of a child: a snapshot of its own, under locks of its own.
  void restart_in_child() noexcept;

 private:
  static constexpr auto kLongestWait = std::chrono::milliseconds(100);
  struct Root {
    // Changes queue for it, so that one seldom has to start again. No thread waits longer than kLongestWait: what a
    // change runs may be waiting for another. Recursive: a log sink may make a change.
    std::recursive_timed_mutex turn;
    std::mutex write;                            // held while a snapshot is published
    std::shared_ptr<const Snapshot> owner;       // of `current`; under write
    std::mutex breakers;                         // one thread sets the board's settings at a time
    std::shared_ptr<const Snapshot> left_alone;  // in a child: half changed, never used nor freed
    // In a forked child: the inherited registry, which the parent's root owns and which is never freed.
    std::shared_ptr<const registry::State> inherited;
  };
  // What is to be published. Without `ops` all ops are planned again, else these and those whose health has changed.
  struct Next {
    std::shared_ptr<const registry::State> state;
    std::shared_ptr<const policy::ProcessPolicy> policy;
    std::shared_ptr<const registry::CallObservers> observers;
    std::optional<std::set<std::string>> ops;
  };
  // Publishes what `change(old, next)` makes of the current snapshot, then tells the rest of the runtime.
  template <class F>
  Status edit(const F& change);
  // Runs plugin code. `old` may be null.
  std::shared_ptr<Snapshot> build(const Snapshot* old, Next next) const;
  // False if `old` is not the current snapshot: another thread has published one, or plugin code that ran while this was
  // built has forked and this is the child.
  bool publish(const std::shared_ptr<const Snapshot>& old, std::shared_ptr<Snapshot> next);
  std::shared_ptr<const policy::ProcessPolicy> settled(const registry::State& state,
                                                       policy::ProcessPolicy policy) const;
  // After a change, which is in force: brings the rest of the runtime up to date. Where memory is short that is left for
  // later, and maintenance is woken.
  void follow();
  // Sets the board to what rule file and API say about breakers, and the depth of calls to what the rule file says.
  void set_process_settings();
  // The versions of ops whose entry changes, and of overlays, are suspended before `current` is set and renewed after:
  // a thread that has seen the new snapshot of one op must not trust a memo of another.
  void suspend_memos(const Snapshot* before, const Snapshot& next) noexcept;
  void renew_memos(const Snapshot* before, const Snapshot& next) noexcept;

  Core& core_;
  const bool reads_environment_;
  ByIndex<MemoVersion> versions_;
  std::atomic<bool> behind_{false};  // follow() has not been able to do all
  base::ReplacedInChild<Root> root_;
};

}  // namespace yard::dispatch

namespace yard::detail {

struct TicketState {
  // Expired when the records are freed.
  std::vector<std::weak_ptr<const void>> removed;
  // Of the process whose records they are: a forked child never frees its parent's.
  const uint64_t forks = base::forks();
  // In a forked child, for inherited records: they are never freed, so it waits for the calls only. Else null.
  std::shared_ptr<const std::atomic<bool>> calls_ended;
};

}  // namespace yard::detail
