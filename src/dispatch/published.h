// SPDX-License-Identifier: Apache-2.0
// The current snapshot, the versions that memos compare, and the changes of both.
//
// A change builds the next snapshot without a lock, because probes and log sinks may run meanwhile.
// It publishes under a short lock if its old snapshot is still current. Otherwise it builds again.
#pragma once

#include "dispatch/snapshot.h"

namespace yard::dispatch {

// One T for each op index, at an address that never changes. Thread-safe. Grows without a lock.
template <class T>
class ByIndex {
 public:
  T& operator[](uint32_t index) const {
    return index < Chunk::kCount ? first_.of[index] : beyond_first(index);
  }

 private:
  struct Chunk {
    static constexpr uint32_t kCount = 256;
    T of[kCount]{};
    Chunk* next = nullptr;
  };
  [[gnu::noinline]] T& beyond_first(uint32_t index) const {
    for (;;) {
      uint32_t at = index;
      for (Chunk& c : more_)
        if ((at -= Chunk::kCount) < Chunk::kCount) return c.of[at];
      more_.append(std::make_unique<Chunk>());  // another thread may append one too
    }
  }
  mutable Chunk first_;
  mutable base::OwnedAppendList<Chunk> more_;
};

class Published {
 public:
  // If `reads_environment` is set, environment variables that backends name switch these backends.
  Published(Core& core, bool reads_environment);
  ~Published();

  // ---- Read by every call ----
  std::atomic<const Snapshot*> current{nullptr};
  // The version that memos and handles of an op compare. It is suspended before `current` changes
  // and renewed before the old snapshot is retired. So a thread that protects an entry and then
  // finds the version unchanged knows that it protected the entry in time.
  MemoVersion& version(uint32_t index) const { return versions_[index]; }
  mutable MemoVersion overlays_version;

  std::shared_ptr<const Snapshot> snapshot() const;

  // ---- Changes: any thread may call these, outside of selections ----
  // Applies all steps, or none on error.
  Result<Ticket> apply(const std::vector<registry::Step>& steps);
  // Replaces the registry, and resets policy and static map. Op indices are not reused.
  Status start_over(const std::vector<registry::Step>& steps);
  // Publishes the policy that `change` edits, unless it fails. May call `change` several times.
  using PolicyChange = std::function<Status(const registry::State&, policy::ProcessPolicy&)>;
  Status edit_policy(const PolicyChange& change);
  // Publishes `next` in place of `old` among the observers of every call. Either may be null.
  Status replace_observer(const std::shared_ptr<registry::CallObserver>& old,
                          const std::shared_ptr<registry::CallObserver>& next);
  // Makes the entries of all ops again, because features of a device have changed.
  Status renew_entries();
  Status publish_health();
  // Publishes health for a call that has changed the board, so that later calls follow the board.
  // The caller holds no lock, and may be inside a call. The maintenance thread calls on_change().
  void publish_health_in_call() noexcept;
  // Runs CoreServices::on_change() for changes that calls have published.
  void catch_up();

  void restart_in_child() noexcept;

 private:
  void restart();
  // The ops whose entries are made again besides ops with changed health, or nullopt for all.
  using Ops = std::optional<std::set<std::string>>;
  // Edits a copy of the current snapshot without entries. Called again if another change was first.
  using Change = std::function<Status(Snapshot& next, Ops& ops)>;
  Status publish_change(const Change& change);
  // Calls publish_change() outside of selections, and then updates the rest of the runtime.
  Status edit(const Change& change);
  // Makes the entries and tables of `next`, which follows `old`. Runs foreign code.
  void build(const Snapshot& old, Snapshot& next, const Ops& ops) const;
  // Returns false if `old` is not current, because of another change or a fork during the build.
  bool publish(const Snapshot& old, std::unique_ptr<Snapshot> next);
  void apply_settings();

  Core& core_;
  const bool reads_environment_;
  ByIndex<MemoVersion> versions_;
  base::Mutex lock_{base::Rank::kPublish};
  std::shared_ptr<const Snapshot> owner_;  // owns `current`; guarded by lock_
  std::shared_ptr<const Snapshot> empty_;  // has no ops
  std::atomic<bool> restarting_{false};    // `current` is empty_ until restart() has succeeded
};

}  // namespace yard::dispatch

namespace yard::detail {

struct TicketState {
  std::vector<std::weak_ptr<const void>> removed;  // expire when the records are freed
  const uint64_t forks = base::forks();            // tells in which process the ticket was made
  // Set in a forked child, whose own calls count. What threads of the parent held is never freed.
  std::shared_ptr<const std::atomic<bool>> calls_ended;
};

}  // namespace yard::detail
