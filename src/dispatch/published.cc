// SPDX-License-Identifier: Apache-2.0
#include "dispatch/published.h"

#include <thread>

#include "base/results.h"
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

thread_local constinit bool t_restarts = false;

// Returns a copy of a snapshot without its entries, as the next generation.
std::unique_ptr<Snapshot> copy_of(const Snapshot& old) {
  auto next = std::make_unique<Snapshot>();
  next->generation = old.generation + 1;
  next->state = old.state;
  next->policy = old.policy;
  next->health = old.health;
  next->observers = old.observers;
  next->forked = old.forked;
  return next;
}

}  // namespace

Published::Published(Core& core, bool reads_environment)
    : core_(core), reads_environment_(reads_environment) {
  auto first = std::make_unique<Snapshot>();
  first->generation = 1;
  first->state = std::make_shared<registry::State>();
  first->policy = std::make_shared<policy::ProcessPolicy>();
  first->health = core_.board->snapshot();
  owner_ = Snapshot::share(std::move(first));
  empty_ = owner_;
  current.store(owner_.get(), std::memory_order_release);
}

Published::~Published() {
  current.store(nullptr, std::memory_order_release);
  owner_.reset(), empty_.reset();
  base::reclaimer().collect();
}

std::shared_ptr<const Snapshot> Published::snapshot() const {
  base::ThreadRecord& thread = base::this_thread();
  if (restarting_.load(std::memory_order_acquire) && !t_restarts) core_.published.restart();
  for (;;) {
    base::Guard guard(thread);
    const Snapshot* s = guard.protect(current);
    // The snapshot has expired only if it has been replaced since.
    if (auto held = s->weak_from_this().lock()) return held;
  }
}

void Published::build(const Snapshot& old, Snapshot& next, const Ops& ops) const {
  // Resolve backend names of the environment again, because backends may have changed.
  if (next.state != old.state || next.policy != old.policy) {
    auto policy = std::make_shared<policy::ProcessPolicy>(*next.policy);
    if (reads_environment_) read_own_switches(*next.state, *policy);
    policy->settle(next.state->backend_names());
    next.policy = std::move(policy);
  }
  next.health = core_.board->snapshot();
  next.entries.resize(next.state->index_count());
  for (const auto& [name, op_record] : next.state->op_records) {
    const uint32_t i = op_record->op->index;
    const std::shared_ptr<Entry> before = i < old.entries.size() ? old.entries[i] : nullptr;
    const bool stays = before != nullptr && ops && !ops->contains(name) &&
                       !health_differs(*old.health, *next.health, name);
    next.entries[i] = stays ? before : core_.planner.make_entry(next, *op_record, before.get());
  }
  // Grow the table of versions here, because publish() must not allocate.
  if (!next.entries.empty()) versions_[static_cast<uint32_t>(next.entries.size() - 1)];
  core_.services().make_functions(old, next);
}

// Suspends the versions of all changed ops before setting `current`, because a thread that has seen
// the new entry of one op must not trust a memo of another op.
bool Published::publish(const Snapshot& old, std::unique_ptr<Snapshot> next) {
  std::shared_ptr<const Snapshot> made = Snapshot::share(std::move(next));
  const std::lock_guard lock(lock_);
  if (owner_.get() != &old) return false;
  const auto count = static_cast<uint32_t>(made->entries.size());
  const auto changes = [&](uint32_t i) { return old.entry(i) != made->entry(i); };
  for (uint32_t i = 0; i < count; ++i)
    if (changes(i)) versions_[i].suspend();
  overlays_version.suspend();
  core_.services().on_publication(*made, false);
  current.store(made.get(), std::memory_order_release);
  for (uint32_t i = 0; i < count; ++i)
    if (made->entry(i) != nullptr && (changes(i) || versions_[i].read() == MemoVersion::kNever))
      versions_[i].renew();
  overlays_version.renew();
  core_.services().on_publication(*made, true);
  owner_.swap(made);
  return true;
}

Status Published::publish_change(const Change& change) {
  for (;;) {
    const auto before = snapshot();
    auto next = copy_of(*before);
    Ops ops;
    YARD_RETURN_IF_ERROR(change(*next, ops));
    build(*before, *next, ops);
    if (publish(*before, std::move(next))) return {};
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
  const Status edited = edit([&](Snapshot& next, Ops& ops) -> Status {
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(*next.state, steps));
    YARD_RETURN_IF_ERROR(core_.services().check_change(*next.state, *applied.state));
    ticket->removed.assign(applied.removed.begin(), applied.removed.end());
    next.state = std::move(applied.state);
    ops = std::move(applied.ops);
    return {};
  });
  if (!edited.ok()) return edited;
  if (snapshot()->forked) ticket->calls_ended = base::when_calls_end();
  return Ticket(std::move(ticket));
}

Status Published::start_over(const std::vector<registry::Step>& steps) {
  core_.sites.forget_needed(snapshot()->state->index_count());
  return edit([&](Snapshot& next, Ops&) -> Status {
    registry::State empty;
    empty.indices = next.state->indices;
    YARD_ASSIGN_OR_RETURN(auto applied, registry::apply(empty, steps));
    next.state = std::move(applied.state);
    auto policy = std::make_shared<policy::ProcessPolicy>(*next.policy);
    policy->set = {}, policy->mapped = {};
    next.policy = std::move(policy);
    return {};
  });
}

Status Published::edit_policy(const PolicyChange& change) {
  return edit([&](Snapshot& next, Ops&) -> Status {
    auto policy = std::make_shared<policy::ProcessPolicy>(*next.policy);
    YARD_RETURN_IF_ERROR(change(*next.state, *policy));
    next.policy = std::move(policy);
    return {};
  });
}

Status Published::replace_observer(const std::shared_ptr<registry::CallObserver>& old,
                                   const std::shared_ptr<registry::CallObserver>& next) {
  return edit([&](Snapshot& to, Ops&) {
    auto all = std::make_shared<registry::CallObservers>();
    if (to.observers != nullptr) *all = *to.observers;
    std::erase(*all, old);
    if (next != nullptr) all->push_back(next);
    to.observers = all->empty() ? nullptr : std::move(all);
    return Status();
  });
}

Status Published::renew_entries() {
  return edit([](Snapshot&, Ops&) { return Status(); });
}

Status Published::publish_health() {
  return edit([](Snapshot&, Ops& ops) {
    ops.emplace();
    return Status();
  });
}

void Published::publish_health_in_call() noexcept {
  try {
    // The error only ends the attempt, because another thread has published the board.
    publish_change([&](Snapshot& next, Ops& ops) {
      ops.emplace();
      return core_.board->snapshot() != next.health ? Status() : Status(Code::kConflict, "");
    }).ignore();
    collect_if_due();
  } catch (const std::bad_alloc&) {  // the maintenance thread publishes it
  }
}

void Published::catch_up() {
  if (!select::inside_select()) core_.services().on_change();
}

void Published::apply_settings() {
  // Repeat if another change came meanwhile, because older settings may have been written last.
  std::shared_ptr<const Snapshot> s;
  while (s != snapshot()) {
    s = snapshot();
    const policy::ProcessPolicy& policy = *s->policy;
    const Config none;
    const Config& config = policy.file != nullptr ? policy.file->config : none;
    const ConfigSettings& settings = config.settings;
    core_.max_call_depth =
        static_cast<uint32_t>(settings.max_call_depth.value_or(Core::kMaxCallDepth));
    core_.state_budget->most_bytes =
        static_cast<uint64_t>(policy.reading->good.state_bytes.value_or(
            settings.state_bytes.value_or(exec::StateBudget::kMostBytes)));
    const BreakerSettings wanted = breaker_of(config, policy.breakers);
    if (core_.board->set_settings(wanted, std::chrono::steady_clock::now())) core_.health_changed();
  }
}

// If memory runs out, the child has no ops, and snapshot() tries again.
void Published::restart_in_child() noexcept {
  restarting_ = true;
  if (base::or_out_of_memory([&] { restart(); }).ok()) return;
  for (uint32_t i = 0; i < owner_->entries.size(); ++i) versions_[i].suspend();
  overlays_version.suspend();
  current.store(empty_.get(), std::memory_order_release);
}

// In the child, breakers start closed, rollouts and overlays are gone, and backends that cannot
// survive a fork are unavailable. Calls that this thread is inside of keep the old snapshot.
void Published::restart() {
  t_restarts = true;
  const struct Leave {
    ~Leave() { t_restarts = false; }
  } leave;
  std::shared_ptr<const Snapshot> last;
  {
    const std::lock_guard lock(lock_);
    if (!restarting_) return;
    last = owner_;
  }
  auto next = copy_of(*last);
  next->forked = true;
  Ops ops;
  if (next->policy->rollout != nullptr) {
    auto without = std::make_shared<policy::ProcessPolicy>(*next->policy);
    without->rollout = nullptr;
    next->policy = std::move(without);
  } else {
    ops.emplace();
    for (const auto& [name, op_record] : next->state->op_records)
      for (const auto& [id, kernel] : op_record->kernels)
        if ((kernel->backend->d.flags & YARD_BACKEND_FORK_UNSAFE) != 0) ops->insert(name);
  }
  core_.board->restart();
  build(*last, *next, ops);
  publish(*last, std::move(next));  // does nothing if another thread has published
  restarting_ = false;
}

}  // namespace yard::dispatch

namespace yard {

Ticket::Ticket(std::shared_ptr<detail::TicketState> state) : state_(std::move(state)) {}

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
