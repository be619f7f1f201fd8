// SPDX-License-Identifier: Apache-2.0
// The core of a runtime: the current snapshot, how it changes, and how calls without a plan get one.
//
// Everything a call needs hangs off `current`. Whoever changes something builds the next snapshot under
// the root's write lock and publishes it by one store; nobody waits for calls. Plans are added to the
// entries of a snapshot under the plan lock. Locks live in the root, which a forked child leaves behind
// and replaces: the snapshot itself holds none.
#pragma once

#include <yard/detail/memo.h>
#include <yard/options.h>
#include <yard/registry.h>
#include <yard/runtime.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/reclaimer.h"
#include "dispatch/scope.h"
#include "dispatch/snapshot.h"
#include "exec/states.h"
#include "health/board.h"
#include "policy/sources.h"
#include "registry/changes.h"
#include "registry/lazy_loader.h"
#include "select/select.h"

namespace yard::detail {

using dispatch::Entry;
using dispatch::Key;
using dispatch::MemoVersion;
using dispatch::Snapshot;

class Core;

// What scope and call say beyond the process: what an overlay is made for.
struct PolicyOverride {
  Policy policy;  // of both
  select::CallConstraints constraints;
  std::string mode;               // by name; empty: nothing is said
  const char* mode_by = nullptr;  // "call" or "scope"
  std::map<std::string, std::string, std::less<>> labels;
  dispatch::OverlayKey key;  // borrows the options it was made from
};
// `labelled`: with the call's own labels, which only some rules read.
dispatch::OverlayKey overlay_key(const Options* options, const ScopeState* scope, bool labelled,
                                 bool rollout = false);
PolicyOverride make_override(const Options* options, const ScopeState* scope,
                             const dispatch::OverlayKey& key);

// What mode and rules say about an op to everybody; and to those a policy override is for.
select::OpSettings settings_for(const policy::ProcessPolicy& policy,
                                const registry::OpRecord& op_record);
select::OpSettings settings_for(select::OpSettings of_process, const PolicyOverride& extra);
// With health.
select::OpSettings settings_for(const Snapshot& snapshot, const registry::OpRecord& op_record);
// Whether the mode that a policy override names is there.
Status check_override(const PolicyOverride& extra, const policy::Modes& modes);
// Whether all modes that a rule file names are there.
Status check_modes(const Config& config, const policy::Modes& modes);

// One selection under way; others that need the same wait for it.
struct Flight {
  uint64_t generation = 0;
  const Entry* entry = nullptr;
  std::vector<uint64_t> key;
  bool done = false;
  Status status;
};

struct Root {
  std::mutex write;
  std::shared_ptr<const Snapshot> owner;  // of `current`; under write
  std::mutex settling;                    // of breakers
  std::mutex plans;                       // plan tables, overlay tables, flights
  std::condition_variable landed;
  std::vector<std::shared_ptr<Flight>> flights;
  std::atomic<uint64_t> selections{0};
  exec::States states;                                 // of plain calls
  std::vector<std::weak_ptr<exec::States>> instances;  // under plans
  std::shared_ptr<const Snapshot> left_behind;         // in a forked child: not to be touched again
  // In a forked child: what it was born with, which the root that it left behind holds for ever.
  std::shared_ptr<const registry::State> inherited;
};

class Core {
 public:
  Core(const yard_host_t* host, size_t plans_per_op);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const uint64_t id;  // no other core of the process has or had it

  // ---- Read by every call ----
  std::atomic<const Snapshot*> current{nullptr};
  const yard_host_t* host;

  // What is remembered of an op's calls is valid while this does not change. It is renewed after `current`
  // and before what was current is let go, so whoever holds the entry and then finds the version unchanged
  // holds it in time. The address stays for the life of the core.
  MemoVersion& version(uint32_t index) const { return of_index(index).version; }
  // The same for calls in scopes and with options, of all ops: their entries live in the snapshot.
  MemoVersion overlays_version;

  // ---- Changes ----
  // Whether the variables count that backends chose for themselves. Set before the first change.
  bool reads_environment = false;
  Result<Ticket> apply(const std::vector<registry::Step>& steps);
  // What is said through the API; or by the environment.
  Status set_policy(Policy policy);
  Status set_environment(std::shared_ptr<const policy::Reading> reading);
  // What a rule file says; null: there is none.
  Status set_file(std::shared_ptr<const policy::FileRules> file);
  // Rules that only some calls go by, beside those in force. set_file() ends it.
  Status begin_rollout(std::shared_ptr<const policy::FileRules> file, const RolloutRule& rule);
  Status end_rollout();
  // A call that goes by them.
  Status call_in_rollout(Site& site, const yard_value_t* args, uint32_t count,
                         const Options* options, std::shared_ptr<const policy::Rollout> rollout);
  Status set_labels(op::Labels labels);
  // Kernels of ops in the program's own static map; names are checked.
  Status set_static_map(StaticMap map);
  // A mode is taken away only when the rule file in force does not name it; who names it after that is told.
  Status add_mode(std::shared_ptr<const policy::ProgramMode> mode);
  Status remove_mode(std::string_view name);
  // Who is told of every call; null: nobody. Calls in flight may still tell the one before.
  Status set_observer(std::shared_ptr<registry::CallObserver> observer);
  // Classes of calls that have a plan now and would have no kernel under these rules, of the process and of
  // scopes; at most `most` of each op. Publishes nothing.
  struct Orphan {
    std::string call;    // a CallSpec
    std::string kernel;  // that serves it now
    std::string why;     // not any more
  };
  std::vector<Orphan> left_without(const std::shared_ptr<const policy::FileRules>& file,
                                   size_t most = 3) const;
  // These steps from nothing, with no policy but the environment's; indices stay taken. One snapshot.
  Status start_over(const std::vector<registry::Step>& steps);

  // The current snapshot, held by reference.
  std::shared_ptr<const Snapshot> snapshot() const;

  // ---- Calls ----
  Site* attach(std::string_view name, std::string_view letters, Status* why);
  // Finds the op of a site again, after it was removed.
  Status attach_again(Site& site);
  // Everything that is not a plain hit: see call.cc.
  Status call_slow(Site& site, const yard_value_t* args, uint32_t count, const Options* options);

  // The overlay entry for a policy override; made if it is not there.
  std::shared_ptr<const Entry> overlay(const std::shared_ptr<const Snapshot>& s, uint32_t index,
                                       const PolicyOverride& extra);
  // Finds and stores a plan for the class of `call`; one thread selects, others wait for it. Null when the
  // caller may look it up now; a plan when it could not be stored and is the caller's to use.
  Result<exec::Plan::Ptr> make_plan(const Entry& entry, const Key& key, const op::Call& call);
  // The same without storing it.
  Result<exec::Plan::Ptr> fresh_plan(const Entry& entry, const Key& key, const op::Call& call);
  // The plan that make_plan stored, kept from eviction, and the entry kept while a reader holds `node`; null
  // if the plan has gone meanwhile.
  const exec::Plan* pin_plan(const Entry& entry, const Key& key, const void* node);
  // The node is gone. `plan` may be null.
  void unpin_plan(const Entry& entry, const exec::Plan* plan, const void* node);

  Result<Explanation> explain(const op::CallSpec& spec, const Options& o) const;
  Result<Explanation> explain(const registry::OpRecord& op_record, const op::Call& call,
                              const Options& o, const Snapshot& s) const;
  RuntimeStats stats() const;
  // Lets go of plans that are older than rules allow. When to come again; nothing: no need to.
  std::optional<std::chrono::steady_clock::time_point> sweep(
      std::chrono::steady_clock::time_point now);

  // Where kernels with state keep it: the call's instance, or all plain calls together.
  exec::States* states_for(const Options* options) const noexcept;
  // Has the states of an instance looked through when kernels go.
  void watch(const std::shared_ptr<exec::States>& states);

  // ---- Health ----
  mutable health::Board board;
  // Told by any thread when the board has changed and should be published; set before the first call.
  std::function<void()> on_health;
  void health_moved() const {
    if (on_health) on_health();
  }
  // Something has changed that is asked of the host: all is planned again.
  Status plan_anew();
  // Puts in force what the board says now.
  Status publish_health();
  // Whoever follows the snapshot is as new as it when this returns: another thread may have published it just now.
  void catch_up();
  // What breakers follow, under what the rule file says.
  Status set_breakers(const BreakerSettings& settings);
  // How often each kernel has run well; and implementations of functions, whoever knows of them.
  std::vector<health::Successes> successes() const;
  std::function<void(std::vector<health::Successes>&)> add_successes;  // set before the first call

  // Asked before a change of the registry is published; an error refuses it. Set before the first call.
  std::function<Status(const registry::State& before, const registry::State& after)> check;
  // Called after each change, holding no lock. Set before the first call.
  std::function<void()> changed;
  // Called in a forked child once the core can be used there, before anything else runs. Null: nobody wants to be.
  std::atomic<const std::function<void()>*> in_child{nullptr};

  // Who looks at what the kernels of an op do, as the rule file says; null: nobody. Set before the first call.
  using MakeInspector = std::function<std::shared_ptr<registry::Inspector>(
      const Config&, const std::shared_ptr<const registry::OpRecord>&,
      const select::Surroundings&)>;
  MakeInspector make_inspector;

  // ---- What has been found and not yet been loaded ----
  registry::LazyLoader* loader = nullptr;  // set before the first call
  // An op is asked for by name: has whatever offers it loaded, the first time and while it is not known
  // (`op_record` is null). True if the caller must look it up again. Outside of guards, holding no lock.
  bool first_need(std::string_view op, const registry::OpRecord* op_record) const;
  // The answer to a name that no op has: with the nearest there is, and plugins that would have brought it.
  Status unknown_op(const registry::State& state, std::string_view name) const;
  // Whether first_need() has been asked for an op that is known.
  bool in_use(std::string_view op) const;

  // In a forked child.
  void abandon_root() noexcept;

 private:
  class Landing;
  Root& root() const noexcept { return *root_.load(std::memory_order_acquire); }
  // Builds and publishes. Under the write lock of `r`; `before` is to be dropped after it. False if plugin
  // code that was asked on the way has forked and this is the child: then there is another root.
  bool publish(Root& r, std::shared_ptr<const registry::State> state,
               std::shared_ptr<const policy::ProcessPolicy> policy,
               const std::set<std::string>* ops, std::shared_ptr<const Snapshot>& before);
  // Publishes what `change` makes of the current snapshot.
  template <class F>
  Status edit(const F& change);
  // The same for what is said for the process.
  Status edit_policy(
      const std::function<Status(const registry::State&, policy::ProcessPolicy&)>& change);
  // How many plans it may keep.
  size_t plans_of(const Entry& entry) const noexcept;
  std::shared_ptr<Entry> build_entry(const Snapshot& next, const registry::OpRecord& op_record,
                                     const Entry* old);

  // What breakers are to follow after a change.
  void settle_breakers();
  // Ends the states of kernels that are not there any more. Holding no lock.
  void end_states();
  // The versions of ops whose entry changes from one snapshot to the next, and of overlays: before and after
  // `current` is set. Else a thread could see one op as it is from now on, and of another trust a memo.
  void suspend_memos(const Snapshot* before, const Snapshot& next) noexcept;
  void renew_memos(const Snapshot* before, const Snapshot& next) noexcept;

  // What stays with an op's index for the life of the core.
  struct OfIndex {
    MemoVersion version;
    std::atomic<Site*> packed{nullptr};  // the site of calls by name and from C
    std::atomic<bool> needed{false};     // see first_need()
  };
  struct Indices {
    static constexpr uint32_t kCount = 256;
    OfIndex of[kCount]{};
    std::atomic<Indices*> next{nullptr};
  };
  OfIndex& of_index(uint32_t index) const {
    return index < Indices::kCount ? indices_.of[index] : of_high_index(index);
  }
  OfIndex& of_high_index(uint32_t index) const;
  mutable Indices indices_;

  uint64_t generation_ = 0;  // of the last snapshot; under write
  std::atomic<Root*> root_;
  std::atomic<Site*> sites_{nullptr};
  size_t plans_per_op_;
};

// The letters of a site that is called with packed arguments, whose tags each call checks.
inline constexpr std::string_view kPacked = "*";

// Frees what has been retired and is not used any more, once there is enough of it. Whoever retires things
// on the way of a call does this after it, so that they cannot pile up between changes. Holding no lock.
void tidy();

struct TicketState {
  // Expired when the records are gone.
  std::vector<std::weak_ptr<const void>> removed;
  // The process whose records they are: a forked child leaves them behind and never lets them go.
  const uint64_t forks = base::forks();
  // In a child, of what it was born with: that never goes, so calls are all there is to wait for. Else null.
  std::shared_ptr<const std::atomic<bool>> calls_ended;
};

}  // namespace yard::detail
