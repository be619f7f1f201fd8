// SPDX-License-Identifier: Apache-2.0
// Building and publishing snapshots, and tickets for what a change removed.
#include "dispatch/published_state.h"

#include <algorithm>
#include <thread>

#include "base/background.h"
#include "base/results.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"

namespace yard::dispatch {
namespace {

// Whether health of an op differs between two snapshots.
bool health_differs(const health::HealthSnapshot* before, const health::HealthSnapshot* now,
                    const std::string& op) {
  if (before == now) return false;
  const auto concerns = [&](const health::HealthSnapshot* h) {
    return h != nullptr && (!h->devices_lost().empty() || h->of_op(op) != nullptr);
  };
  return concerns(before) || concerns(now);
}

// Whether some of these records are in the state.
bool holds_any(const registry::State* state,
               const std::vector<std::shared_ptr<const void>>& records) {
  if (state == nullptr) return false;
  std::set<const void*> all;
  for (const auto& [name, op_record] : state->op_records) {
    all.insert(op_record->op.get());
    for (const auto& [id, kernel] : op_record->kernels) all.insert(kernel.get());
  }
  for (const auto& [name, backend] : state->backends) all.insert(backend.get());
  for (const auto& f : state->functions) all.insert(f.get());
  return std::any_of(records.begin(), records.end(),
                     [&](const auto& r) { return all.count(r.get()) != 0; });
}

}  // namespace

PublishedState::PublishedState(Core& core, bool reads_environment)
    : core_(core), reads_environment_(reads_environment) {
  publish(nullptr,
          build(nullptr, {std::make_shared<registry::State>(),
                          std::make_shared<policy::ProcessPolicy>(), nullptr, std::nullopt}));
}

PublishedState::~PublishedState() {
  current.store(nullptr, std::memory_order_release);
  root_.get().owner.reset();
  base::reclaimer().collect();
}

std::shared_ptr<const Snapshot> PublishedState::snapshot() const {
  base::ThreadRecord& thread = base::this_thread();
  for (;;) {
    base::Guard guard(thread);
    const Snapshot* s = guard.protect(current);
    // Expired only if it has been replaced since.
    if (auto held = s->weak_from_this().lock()) return held;
  }
}

std::shared_ptr<const policy::ProcessPolicy> PublishedState::settled(
    const registry::State& state, policy::ProcessPolicy policy) const {
  if (reads_environment_) read_own_switches(state, policy);
  policy.settle(state.backend_names());
  return std::make_shared<const policy::ProcessPolicy>(std::move(policy));
}

std::shared_ptr<Snapshot> PublishedState::build(const Snapshot* old, Next what) const {
  auto next = Snapshot::make();
  next->generation = old != nullptr ? old->generation + 1 : 1;
  next->state = std::move(what.state);
  next->policy = std::move(what.policy);
  next->observers = std::move(what.observers);
  // The environment's names of backends stand for those that are registered now.
  if (!next->policy->reading->good.policy.backends.empty() || !next->policy->own_switches.empty() ||
      (reads_environment_ && has_own_switches(*next->state)))
    next->policy = settled(*next->state, *next->policy);
  next->forked = old != nullptr && old->forked;
  next->health = core_.board->snapshot();
  const auto health_before = old != nullptr ? old->health : nullptr;
  std::vector<std::shared_ptr<Entry>> entries(next->state->index_count());
  for (const auto& [name, op_record] : next->state->op_records) {
    const uint32_t i = op_record->op->index;
    const bool had = old != nullptr && i < old->owners().size() && old->owners()[i] != nullptr;
    if (had && what.ops && what.ops->count(name) == 0 &&
        !health_differs(health_before.get(), next->health.get(), name))
      entries[i] = old->owners()[i];
    else
      entries[i] =
          core_.planner.make_entry(*next, *op_record, had ? old->owners()[i].get() : nullptr);
  }
  if (!entries.empty()) versions_[static_cast<uint32_t>(entries.size() - 1)];
  next->set_entries(std::move(entries));
  core_.services().make_functions(old, *next);
  return next;
}

// Allocates nothing: the change is published as a whole.
bool PublishedState::publish(const std::shared_ptr<const Snapshot>& old,
                             std::shared_ptr<Snapshot> next) {
  Root& r = root_.get();
  const std::lock_guard lock(r.write);
  if (r.owner != old) return false;
  r.owner = std::move(next);
  suspend_memos(old.get(), *r.owner);
  core_.services().before_publication(*r.owner);
  current.store(r.owner.get(), std::memory_order_release);
  renew_memos(old.get(), *r.owner);
  core_.services().after_publication(*r.owner);
  return true;
}

void PublishedState::suspend_memos(const Snapshot* before, const Snapshot& next) noexcept {
  for (uint32_t i = 0; i < next.owners().size(); ++i)
    if (before == nullptr || before->entry(i) != next.entry(i)) versions_[i].suspend();
  overlays_version.suspend();
}

void PublishedState::renew_memos(const Snapshot* before, const Snapshot& next) noexcept {
  for (uint32_t i = 0; i < next.owners().size(); ++i) {
    MemoVersion& v = versions_[i];
    const bool changed_here = before == nullptr || before->entry(i) != next.entry(i);
    if (next.entry(i) != nullptr && (changed_here || v.read() == MemoVersion::kNever)) v.renew();
  }
  overlays_version.renew();
}

template <class F>
Status PublishedState::edit(const F& change) {
  if (select::inside_select())
    return Status(Code::kWouldDeadlock,
                  "a probe, verifier or cost hint must not change the registry or the policy");
  const base::MayWait unless_in_a_call;
  for (bool done = false; !done;) {
    const auto give_up = std::chrono::system_clock::now() + kLongestWait;
    const std::unique_lock turn(root_.get().turn, give_up);
    const auto before = snapshot();
    Next next{before->state, before->policy, before->observers, std::nullopt};
    YARD_RETURN_IF_ERROR(change(*before, next));
    done = publish(before, build(before.get(), std::move(next)));
  }
  follow();
  return {};
}

void PublishedState::follow() {
  try {
    behind_.store(false, std::memory_order_relaxed);
    core_.end_states_of_removed_kernels();
    set_process_settings();
    core_.services().on_change();
  } catch (const std::bad_alloc&) {
    behind_.store(true, std::memory_order_relaxed);
    core_.health_changed();  // wakes the thread that calls follow_if_behind()
  }
  base::reclaimer().collect();
}

void PublishedState::follow_if_behind() {
  if (behind_.load(std::memory_order_relaxed)) follow();
}

Result<Ticket> PublishedState::apply(const std::vector<registry::Step>& steps) {
  auto ticket = std::make_shared<TicketState>();
  bool inherited = false;
  Status edited = edit([&](const Snapshot& old, Next& next) -> Status {
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(*old.state, steps));
    YARD_RETURN_IF_ERROR(core_.services().check_change(*old.state, *applied.state));
    ticket->removed.assign(applied.removed.begin(), applied.removed.end());
    inherited = holds_any(root_.get().inherited.get(), applied.removed);
    next.state = applied.state;
    next.ops = std::move(applied.ops);
    return {};
  });
  if (!edited.ok()) return edited;
  if (inherited) ticket->calls_ended = base::when_calls_end();
  return Ticket(std::move(ticket));
}

Status PublishedState::start_over(const std::vector<registry::Step>& steps) {
  core_.sites.forget_needed(snapshot()->state->index_count());
  return edit([&](const Snapshot& old, Next& next) -> Status {
    registry::State empty;
    empty.indices = old.state->indices;
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(empty, steps));
    next.state = applied.state;
    policy::ProcessPolicy p = *old.policy;
    p.set = {};
    p.mapped = {};
    next.policy = settled(*next.state, std::move(p));
    return {};
  });
}

Status PublishedState::edit_policy(const PolicyChange& change) {
  return edit([&](const Snapshot& old, Next& next) -> Status {
    policy::ProcessPolicy p = *old.policy;
    YARD_RETURN_IF_ERROR(change(*old.state, p));
    next.policy = settled(*old.state, std::move(p));
    return {};
  });
}

Status PublishedState::replace_observer(const std::shared_ptr<registry::CallObserver>& old,
                                        const std::shared_ptr<registry::CallObserver>& next) {
  return edit([&](const Snapshot&, Next& to) {
    auto all = std::make_shared<registry::CallObservers>();
    if (to.observers != nullptr) *all = *to.observers;
    std::erase(*all, old);
    if (next != nullptr) all->push_back(next);
    to.observers = all->empty() ? nullptr : std::move(all);
    return Status();
  });
}

Status PublishedState::replan_all() {
  return edit([](const Snapshot&, Next&) { return Status(); });
}

Status PublishedState::publish_health() {
  return edit([](const Snapshot&, Next& next) {
    next.ops.emplace();
    return Status();
  });
}

void PublishedState::catch_up() {
  if (select::inside_select()) return;
  core_.services().on_change();
}

void PublishedState::set_process_settings() {
  bool changed = false;
  int64_t most_state_bytes;
  {
    // The policy is read under the lock: else the last to write could be the one that read first.
    const std::lock_guard lock(root_.get().breakers);
    const auto policy = snapshot()->policy;
    const Config none;
    const Config& config = policy->file != nullptr ? policy->file->config : none;
    core_.max_call_depth =
        static_cast<uint32_t>(config.settings.max_call_depth.value_or(Core::kMaxCallDepth));
    most_state_bytes = policy->reading->good.state_bytes.value_or(
        config.settings.state_bytes.value_or(exec::StatesOwner::kMostBytes));
    const BreakerSettings wanted = breaker_of(config, policy->breakers);
    changed = wanted != core_.board->settings() &&
              core_.board->set_settings(wanted, std::chrono::steady_clock::now());
  }
  core_.set_most_state_bytes(static_cast<uint64_t>(most_state_bytes));
  if (changed) core_.health_changed();
}

void PublishedState::restart_in_child() noexcept {
  auto* fresh = new Root;
  const Snapshot* last = current.load(std::memory_order_acquire);
  fresh->owner = last->shared_from_this();
  fresh->inherited = last->state;
  // What a thread was changing that does not exist here can be neither used nor freed.
  if (last->being_edited()) fresh->left_alone = fresh->owner;
  root_.replace(fresh);
  // Overlays start empty. The old snapshot stays for calls that this thread is inside of.
  auto next = Snapshot::make();
  next->generation = last->generation + 1;
  next->state = last->state;
  next->policy = last->policy;
  next->observers = last->observers;
  if (next->observers != nullptr)
    for (const auto& o : *next->observers) o->forked();
  // A rollout is the parent's: nothing in the child would end it.
  if (next->policy->rollout != nullptr) {
    auto without = std::make_shared<policy::ProcessPolicy>(*next->policy);
    without->rollout = nullptr;
    next->policy = std::move(without);
  }
  next->forked = true;
  core_.board.abandon();
  next->health = core_.board->snapshot();
  std::vector<std::shared_ptr<Entry>> entries = last->owners();
  for (auto& entry : entries)
    if (entry != nullptr) entry = core_.planner.entry_in_child(*next, entry);
  next->set_entries(std::move(entries));
  const auto before = std::exchange(fresh->owner, std::move(next));
  current.store(fresh->owner.get(), std::memory_order_release);
  renew_memos(last, *fresh->owner);
}

}  // namespace yard::dispatch

namespace yard {

Ticket::Ticket() = default;
Ticket::Ticket(std::shared_ptr<detail::TicketState> state) : state_(std::move(state)) {}
Ticket::~Ticket() = default;
Ticket::Ticket(const Ticket&) = default;
Ticket& Ticket::operator=(const Ticket&) = default;

bool Ticket::done() const {
  if (state_ == nullptr) return true;
  const base::MayWait unless_in_a_call;
  if (state_->forks != base::forks()) return base::inherited_calls_ended();
  if (state_->calls_ended != nullptr) {
    base::reclaimer().collect();
    return state_->calls_ended->load(std::memory_order_acquire);
  }
  const auto freed = [&] {
    return std::all_of(state_->removed.begin(), state_->removed.end(),
                       [](const auto& w) { return w.expired(); });
  };
  if (freed()) return true;
  base::reclaimer().collect();
  return freed();
}

Status Ticket::wait(std::chrono::nanoseconds timeout) const {
  if (base::inside_call() || select::inside_select())
    return done() ? Status()
                  : Status(Code::kWouldDeadlock,
                           "waiting inside a kernel, verifier or callback for what it may itself "
                           "be using");
  const auto start = std::chrono::steady_clock::now();
  for (auto pause = std::chrono::microseconds(10); !done();
       pause = std::min(pause * 2, std::chrono::microseconds(2000))) {
    if (std::chrono::steady_clock::now() - start >= timeout)
      return Status(Code::kDeadline, "what was removed is still in use");
    std::this_thread::sleep_for(pause);
  }
  return {};
}

}  // namespace yard
