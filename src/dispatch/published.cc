// SPDX-License-Identifier: Apache-2.0
// Building and publishing snapshots, and tickets for what a change removed.
#include "dispatch/published.h"

#include <algorithm>
#include <thread>

#include "base/results.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"

namespace yard::dispatch {
namespace {

bool health_differs(const health::HealthSnapshot& was, const health::HealthSnapshot& is,
                    const std::string& op) {
  if (&was == &is) return false;
  const auto *a = was.of_op(op), *b = is.of_op(op);
  return was.devices_lost() != is.devices_lost() ||
         (a == nullptr || b == nullptr ? a != b : *a != *b);
}

}  // namespace

Published::Published(Core& core, bool reads_environment)
    : core_(core), reads_environment_(reads_environment) {
  publish(nullptr, build(nullptr, {std::make_shared<registry::State>(),
                                   std::make_shared<policy::ProcessPolicy>(), nullptr, false}));
}

Published::~Published() {
  current.store(nullptr, std::memory_order_release);
  owner_.reset();
  base::reclaimer().collect();
}

std::shared_ptr<const Snapshot> Published::snapshot() const {
  base::ThreadRecord& thread = base::this_thread();
  for (;;) {
    base::Guard guard(thread);
    const Snapshot* s = guard.protect(current);
    // Expired only if it has been replaced since.
    if (auto held = s->weak_from_this().lock()) return held;
  }
}

std::shared_ptr<Snapshot> Published::build(const Snapshot* old, Next what) const {
  auto next = Snapshot::make();
  next->generation = old != nullptr ? old->generation + 1 : 1;
  next->state = std::move(what.state);
  next->observers = std::move(what.observers);
  next->forked = what.forked;
  // The names of backends that the environment gives stand for those that are registered now.
  if (old == nullptr || next->state != old->state || what.policy != old->policy) {
    auto policy = std::make_shared<policy::ProcessPolicy>(*what.policy);
    if (reads_environment_) read_own_switches(*next->state, *policy);
    policy->settle(next->state->backend_names());
    what.policy = std::move(policy);
  }
  next->policy = std::move(what.policy);
  next->health = core_.board->snapshot();
  next->entries.resize(next->state->index_count());
  for (const auto& [name, op_record] : next->state->op_records) {
    const uint32_t i = op_record->op->index;
    const bool had = old != nullptr && i < old->entries.size();
    const std::shared_ptr<Entry> before = had ? old->entries[i] : nullptr;
    const bool stays = before != nullptr && what.ops && !what.ops->contains(name) &&
                       !health_differs(*old->health, *next->health, name);
    next->entries[i] = stays ? before : core_.planner.make_entry(*next, *op_record, before.get());
  }
  if (!next->entries.empty()) versions_[static_cast<uint32_t>(next->entries.size() - 1)];
  core_.services().make_functions(old, *next);
  return next;
}

// The versions of all ops whose entries change are suspended before `current` is set: a thread that has seen the new
// entry of one op must not trust a memo of another.
bool Published::publish(const std::shared_ptr<const Snapshot>& old,
                        std::shared_ptr<Snapshot> next) {
  const std::lock_guard lock(lock_);
  if (owner_ != old) return false;
  const auto count = static_cast<uint32_t>(next->entries.size());
  const auto changes = [&](uint32_t i) {
    return old == nullptr || old->entry(i) != next->entry(i);
  };
  for (uint32_t i = 0; i < count; ++i)
    if (changes(i)) versions_[i].suspend();
  overlays_version.suspend();
  core_.services().on_publication(*next, false);
  current.store(next.get(), std::memory_order_release);
  for (uint32_t i = 0; i < count; ++i)
    if (next->entry(i) != nullptr && (changes(i) || versions_[i].read() == MemoVersion::kNever))
      versions_[i].renew();
  overlays_version.renew();
  core_.services().on_publication(*next, true);
  owner_ = std::move(next);
  return true;
}

Status Published::publish_change(const Change& change) {
  for (;;) {
    const auto before = snapshot();
    Next next{before->state, before->policy, before->observers, before->forked};
    YARD_RETURN_IF_ERROR(change(*before, next));
    if (publish(before, build(before.get(), std::move(next)))) return {};
  }
}

Status Published::edit(const Change& change) {
  if (select::inside_select())
    return Status(Code::kWouldDeadlock,
                  "a probe, verifier or cost hint must not change the registry or the policy");
  YARD_RETURN_IF_ERROR(publish_change(change));
  core_.end_states_of_removed_kernels();
  apply_settings();
  core_.services().on_change();
  base::reclaimer().collect();
  return {};
}

Result<Ticket> Published::apply(const std::vector<registry::Step>& steps) {
  auto ticket = std::make_shared<TicketState>();
  const Status edited = edit([&](const Snapshot& old, Next& next) -> Status {
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(*old.state, steps));
    YARD_RETURN_IF_ERROR(core_.services().check_change(*old.state, *applied.state));
    ticket->removed.assign(applied.removed.begin(), applied.removed.end());
    next.state = applied.state;
    next.ops = std::move(applied.ops);
    return {};
  });
  if (!edited.ok()) return edited;
  if (snapshot()->forked) ticket->calls_ended = base::when_calls_end();
  return Ticket(std::move(ticket));
}

Status Published::start_over(const std::vector<registry::Step>& steps) {
  core_.sites.forget_needed(snapshot()->state->index_count());
  return edit([&](const Snapshot& old, Next& next) -> Status {
    registry::State empty;
    empty.indices = old.state->indices;
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(empty, steps));
    next.state = applied.state;
    auto policy = std::make_shared<policy::ProcessPolicy>(*old.policy);
    policy->set = {}, policy->mapped = {};
    next.policy = std::move(policy);
    return {};
  });
}

Status Published::edit_policy(const PolicyChange& change) {
  return edit([&](const Snapshot& old, Next& next) -> Status {
    auto policy = std::make_shared<policy::ProcessPolicy>(*old.policy);
    YARD_RETURN_IF_ERROR(change(*old.state, *policy));
    next.policy = std::move(policy);
    return {};
  });
}

Status Published::replace_observer(const std::shared_ptr<registry::CallObserver>& old,
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

Status Published::renew_entries() {
  return edit([](const Snapshot&, Next&) { return Status(); });
}

Status Published::publish_health() {
  return edit([](const Snapshot&, Next& next) {
    next.ops.emplace();
    return Status();
  });
}

void Published::publish_health_in_call() noexcept {
  try {
    // The error only ends the attempt: what is to be published is published already.
    publish_change([&](const Snapshot& old, Next& next) {
      next.ops.emplace();
      return core_.board->snapshot() != old.health ? Status() : Status(Code::kConflict, "");
    }).ignore();
    collect_if_due();
  } catch (const std::bad_alloc&) {  // the maintenance thread publishes it
  }
}

void Published::catch_up() {
  if (!select::inside_select()) core_.services().on_change();
}

void Published::apply_settings() {
  // Once more if another change was published meanwhile: else the last to write could be the one that read first.
  std::shared_ptr<const Snapshot> s;
  while (s != snapshot()) {
    s = snapshot();
    const policy::ProcessPolicy& policy = *s->policy;
    const Config none;
    const Config& config = policy.file != nullptr ? policy.file->config : none;
    core_.max_call_depth =
        static_cast<uint32_t>(config.settings.max_call_depth.value_or(Core::kMaxCallDepth));
    core_.state_budget->most_bytes =
        static_cast<uint64_t>(policy.reading->good.state_bytes.value_or(
            config.settings.state_bytes.value_or(exec::StateBudget::kMostBytes)));
    const BreakerSettings wanted = breaker_of(config, policy.breakers);
    if (core_.board->set_settings(wanted, std::chrono::steady_clock::now())) core_.health_changed();
  }
}

// Breakers start closed in the child, rollouts and overlays are the parent's, and backends that cannot survive a fork are
// not available any more. The old snapshot stays for calls that this thread is inside of.
void Published::restart_in_child() {
  const auto last = snapshot();
  Next next{last->state, last->policy, last->observers, true};
  if (next.policy->rollout != nullptr) {
    auto without = std::make_shared<policy::ProcessPolicy>(*next.policy);
    without->rollout = nullptr;
    next.policy = std::move(without);
  } else {
    next.ops.emplace();
    for (const auto& [name, op_record] : next.state->op_records)
      for (const auto& [id, kernel] : op_record->kernels)
        if ((kernel->backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0) next.ops->insert(name);
  }
  core_.board->restart();
  publish(last, build(last.get(), std::move(next)));
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
  if (state_->forks != base::forks()) return base::inherited_calls_ended();
  if (state_->calls_ended != nullptr) {
    base::reclaimer().collect();
    return state_->calls_ended->load(std::memory_order_acquire);
  }
  const auto freed = [&] {
    return std::ranges::all_of(state_->removed, [](const auto& w) { return w.expired(); });
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
