// SPDX-License-Identifier: Apache-2.0
// The dispatcher of one runtime: its parts, and the services that the runtime provides.
#pragma once

#include "dispatch/planner.h"
#include "dispatch/sites.h"
#include "exec/states.h"
#include "health/board.h"

namespace yard::dispatch {

// Services that the runtime provides. Several threads may call a function at once. The caller holds
// no lock unless a function says so. The default bodies serve a core without a runtime.
class CoreServices {
 public:
  // Returns the loader of plugins on demand, or null. The caller may hold any lock.
  virtual registry::LazyLoader* lazy_loader() noexcept { return nullptr; }

  // Called before a change of the registry is published, perhaps several times. An error refuses
  // the change. Must not make a change.
  virtual Status check_change(const registry::State& /*before*/, const registry::State& /*after*/) {
    return {};
  }
  // Called after a published change, by the thread that made it or by Published::catch_up(),
  // outside of guards. May make further changes, after which it is called again.
  virtual void on_change() {}

  // Returns the checker for the kernels of an op under these rules, or null. Called while a
  // snapshot is built, and by calls to which rules in rollout apply. Must not make a change.
  virtual std::shared_ptr<registry::ResultChecker> make_result_checker(
      const std::vector<CanaryRule>&, const std::shared_ptr<const registry::OpRecord>&,
      const select::ProcessState&) {
    return nullptr;
  }

  // Adds the tables of functions to a snapshot that is being built. May run probes.
  virtual void make_functions(const Snapshot& /*old*/, Snapshot& /*next*/) {}
  // Called before and after the store that publishes a snapshot, under the lock for publishing.
  // Tells the sites of functions whether they must read the snapshot.
  virtual void on_publication(const Snapshot& /*next*/, bool /*after*/) noexcept {}

  // Called after health was published, even inside a guard. Must be quick and must not publish.
  virtual void on_health() noexcept {}
  // Adds successes that are counted outside of entries, such as successes of dispatched functions.
  virtual void add_successes(std::vector<health::Successes>&) {}

 protected:
  ~CoreServices() = default;
};

// Returns an error if the call nests too deep or memory for its slot runs out, or null.
Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op);
// Like refuse_if_too_deep() for a call of a function. Returns its slot, or throws yard::Error.
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, std::string_view group,
                        std::string_view name);

}  // namespace yard::dispatch

namespace yard::detail {

class Core final {
 public:
  const std::shared_ptr<exec::StateBudget> state_budget = std::make_shared<exec::StateBudget>();

 private:
  // These members must outlive the parts below.
  std::atomic<dispatch::CoreServices*> services_;
  mutable exec::States states_{state_budget};  // for plain calls
  base::Mutex instances_lock_{base::Rank::kStates};
  std::vector<std::weak_ptr<exec::States>> instances_;  // guarded by instances_lock_

 public:
  Core(const yard_host_t* host, size_t plans_per_op, bool reads_environment = false);

  // Set the services before the first call. Set null before they end.
  void set_services(dispatch::CoreServices* services) noexcept;
  dispatch::CoreServices& services() const noexcept {
    return *services_.load(std::memory_order_acquire);
  }

  const uint64_t id;  // unique among all cores that the process ever had
  const yard_host_t* const host;
  // The most nested calls on one thread, which a rule file may set. At least kInlineSlots.
  static constexpr uint32_t kMaxCallDepth = 1000;
  std::atomic<uint32_t> max_call_depth{kMaxCallDepth};
  const std::shared_ptr<health::CallTable> calls = std::make_shared<health::CallTable>();
  mutable health::Board board;
  dispatch::Sites sites;
  dispatch::Planner planner;
  // Declared after the parts that it uses while it publishes and when it ends. Mutable, because a
  // const call publishes the breaker that it opens.
  mutable dispatch::Published published;

  std::shared_ptr<const dispatch::Snapshot> snapshot() const { return published.snapshot(); }

  // Publishes the board if it has changed. The caller holds no lock, and may be inside a call.
  void health_changed() const noexcept {
    published.publish_health_in_call();
    services().on_health();
  }
  std::vector<health::Successes> successes() const;

  // Returns the states of the instance, or the states of all plain calls.
  exec::States* states_for(const Options* options) const;
  static uint32_t flags_of(const Instance& instance) noexcept;
  void add_instance(const std::shared_ptr<exec::States>& states);
  void end_states_of_removed_kernels();  // runs plugin code; the caller holds no lock

 private:
  void restart_in_child();
  base::InChild in_child_{[this] { restart_in_child(); }};  // last: it uses the other members
};

}  // namespace yard::detail
