// SPDX-License-Identifier: Apache-2.0
// The dispatcher of one runtime: its parts, and what it asks of the runtime.
#pragma once

#include "base/mutex.h"
#include "dispatch/planner.h"
#include "dispatch/published.h"
#include "dispatch/sites.h"
#include "exec/states.h"
#include "health/board.h"
#include "registry/interfaces.h"

namespace yard::dispatch {

// What the dispatcher asks of the runtime. Several threads may call a function at once. The caller
// holds no lock unless a function says so. The default bodies serve a core without a runtime.
class CoreServices {
 public:
  // Loads plugins on demand; null if nothing does. The caller may hold any lock.
  virtual registry::LazyLoader* lazy_loader() noexcept { return nullptr; }

  // Called before a change of the registry is published, perhaps several times. An error refuses
  // the change. Must not make a change itself.
  virtual Status check_change(const registry::State& /*before*/, const registry::State& /*after*/) {
    return {};
  }
  // Called after a published change, by the thread that made it or by Published::catch_up(),
  // outside of guards. May make further changes, after which it is called again.
  virtual void on_change() {}

  // Returns what checks the kernels of an op under these rules, or null. Called while a snapshot is
  // built, and by calls to which rules in rollout apply. Must not make a change.
  virtual std::shared_ptr<registry::ResultChecker> make_result_checker(
      const std::vector<CanaryRule>&, const std::shared_ptr<const registry::OpRecord>&,
      const select::ProcessState&) {
    return nullptr;
  }

  // Adds the tables of functions to a snapshot that is being built. May run probes.
  virtual void make_functions(const Snapshot* /*old*/, Snapshot& /*next*/) {}
  // Called before and after the store that publishes a snapshot, under the lock for publishing.
  // Tells the sites of functions whether they have to look at the snapshot at all.
  virtual void on_publication(const Snapshot& /*next*/, bool /*after*/) noexcept {}

  // Called when the health board has changed and is published, also inside the guard of a call.
  // Must be quick and must not publish by itself.
  virtual void on_health() noexcept {}
  // Adds successes that are counted outside of entries: those of dispatched functions.
  virtual void add_successes(std::vector<health::Successes>&) {}

 protected:
  ~CoreServices() = default;
};

// Returns the error of a call that nests too deep or has no memory for its slot, or null.
Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op);
// The same for a call of a function. Returns its slot, or throws yard::Error.
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, std::string_view group,
                        std::string_view name);

}  // namespace yard::dispatch

namespace yard::detail {

class Core final {
 public:
  // Of the states of plain calls and instances.
  const std::shared_ptr<exec::StateBudget> state_budget = std::make_shared<exec::StateBudget>();

 private:
  // They outlive the parts below.
  std::atomic<dispatch::CoreServices*> services_;
  mutable exec::States states_{state_budget};  // of plain calls
  base::Mutex instances_lock_{base::Rank::kStates};
  std::vector<std::weak_ptr<exec::States>> instances_;  // under the lock

 public:
  // `reads_environment`: see Published.
  Core(const yard_host_t* host, size_t plans_per_op, bool reads_environment = false);

  // Set before the first call, and to null before the services end.
  void set_services(dispatch::CoreServices* services) noexcept;
  dispatch::CoreServices& services() const noexcept {
    return *services_.load(std::memory_order_acquire);
  }

  const uint64_t id;  // unique among all cores the process ever had
  const yard_host_t* const host;
  // The limit of nested calls on one thread, at least the number of inline slots. The rule file may
  // set another.
  static constexpr uint32_t kMaxCallDepth = 1000;
  std::atomic<uint32_t> max_call_depth{kMaxCallDepth};
  const std::shared_ptr<health::CallTable> calls = std::make_shared<health::CallTable>();
  mutable health::Board board;
  dispatch::Sites sites;
  dispatch::Planner planner;
  // After the parts that exist while it publishes and when it ends. A const call publishes the
  // breaker that it opens.
  mutable dispatch::Published published;

  std::shared_ptr<const dispatch::Snapshot> snapshot() const { return published.snapshot(); }

  // Publishes the board if it has changed. The caller holds no lock, and may be in a call.
  void health_changed() const noexcept {
    published.publish_health_in_call();
    services().on_health();
  }
  // Counts how often each kernel and each implementation of a function has succeeded.
  std::vector<health::Successes> successes() const;

  // Where kernels keep their state: in the instance of the call, or one place for all plain calls.
  exec::States* states_for(const Options* options) const;
  // YARD_CALL_LOADED if weights are loaded.
  static uint32_t flags_of(const Instance& instance) noexcept;
  // Includes the states of an instance in end_states_of_removed_kernels().
  void add_instance(const std::shared_ptr<exec::States>& states);
  void end_states_of_removed_kernels();  // runs code of plugins; the caller holds no lock

 private:
  void restart_in_child();
  base::InChild in_child_{[this] { restart_in_child(); }};  // last: the rest is made
};

}  // namespace yard::detail
