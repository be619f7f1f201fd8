// SPDX-License-Identifier: Apache-2.0
// Building and publishing snapshots.
#include "dispatch/core.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/text.h"
#include "dispatch/call.h"
#include "dispatch/fork.h"
#include "dispatch/own_switches.h"

namespace yard::detail {
namespace {

// How many known classes of an op a change plans again; the rest are planned when they are next called.
constexpr size_t kReplan = 256;
constexpr size_t kFewestPlans = 4;

uint64_t next_core_id() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Status inside_selection() {
  return Status(Code::kWouldDeadlock,
                "a probe, verifier or cost hint must not change the registry or the policy");
}

std::shared_ptr<const policy::ProcessPolicy> settled(const Core& core, const registry::State& state,
                                                     policy::ProcessPolicy policy) {
  std::vector<std::string> backends;
  for (const auto& [name, backend] : state.backends) backends.push_back(name);
  if (core.reads_environment) dispatch::read_own_switches(state, policy);
  policy.settle(backends);
  return std::make_shared<const policy::ProcessPolicy>(std::move(policy));
}

// Whether health says something else about an op than before.
bool says_otherwise(const health::HealthSnapshot* before, const health::HealthSnapshot* now,
                    const std::string& op) {
  if (before == now) return false;
  const bool lost_before = before != nullptr && !before->devices_lost().empty();
  const bool lost_now = now != nullptr && !now->devices_lost().empty();
  const auto of = [&](const health::HealthSnapshot* v) {
    return v != nullptr ? v->of_op(op) : nullptr;
  };
  return lost_before || lost_now || of(before) != nullptr || of(now) != nullptr;
}

}  // namespace

select::OpSettings settings_for(const Snapshot& snapshot, const registry::OpRecord& op_record) {
  select::OpSettings d = settings_for(*snapshot.policy, op_record);
  const health::HealthSnapshot* h = snapshot.health.get();
  if (h != nullptr && (h->of_op(op_record.op->name) != nullptr || !h->devices_lost().empty()))
    d.health = snapshot.health;
  return d;
}

dispatch::OverlayKey overlay_key(const Options* options, const ScopeState* scope, bool labelled,
                                 bool rollout) {
  return dispatch::OverlayKey::make(scope != nullptr ? scope->policy_id : 0, options, labelled,
                                    rollout);
}

PolicyOverride make_override(const Options* o, const ScopeState* scope,
                             const dispatch::OverlayKey& key) {
  PolicyOverride p;
  p.key = key;
  if (scope != nullptr && scope->policy_id != 0) p.policy = scope->content.policy;
  if (scope != nullptr) p.labels = scope->content.labels;
  if (scope != nullptr && !scope->content.mode.empty())
    p.mode = scope->content.mode, p.mode_by = "scope";
  if (key.options == nullptr) return p;
  if (o->mode) p.mode = to_string(*o->mode), p.mode_by = "call";
  if (!o->mode_name.empty()) p.mode = o->mode_name, p.mode_by = "call";
  if (key.labelled)
    for (const auto& [name, value] : o->labels) p.labels[name] = value;
  if (o->policy) p.policy = merge(p.policy, *o->policy);
  p.constraints = {o->force, o->deny};
  return p;
}

Core::Core(const yard_host_t* h, size_t plans_per_op)
    : id(next_core_id()),
      host(h),
      root_(new Root),
      plans_per_op_(std::max<size_t>(plans_per_op, kFewestPlans)) {
  dispatch::watch_forks();
  std::shared_ptr<const Snapshot> none;
  std::lock_guard lock(root().write);
  publish(root(), std::make_shared<registry::State>(), std::make_shared<policy::ProcessPolicy>(),
          nullptr, none);
  dispatch::add_core(this);
}

Core::~Core() {
  dispatch::remove_core(this);
  current.store(nullptr, std::memory_order_release);
  Root* r = root_.load(std::memory_order_acquire);
  r->owner.reset();
  base::reclaimer().collect();
  for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr;)
    delete std::exchange(s, s->next);
  for (Indices* i = indices_.next.load(std::memory_order_acquire); i != nullptr;)
    delete std::exchange(i, i->next.load(std::memory_order_acquire));
  delete r;
}

size_t Core::plans_of(const Entry& entry) const noexcept {
  const size_t said = entry.candidates().settings().plans;
  return said != 0 ? std::max<size_t>(said, kFewestPlans) : plans_per_op_;
}

std::shared_ptr<Entry> Core::build_entry(const Snapshot& next, const registry::OpRecord& op_record,
                                         const Entry* old) {
  const auto shared = next.state->op_records.find(op_record.op->name)->second;
  const select::Surroundings where{host, next.forked};
  select::OpSettings settings = settings_for(next, op_record);
  if (make_inspector && next.policy->file != nullptr)
    settings.inspector = make_inspector(next.policy->file->config, shared, where);
  auto entry = Entry::make(
      select::CandidateSet::make(shared, next.policy->in_force, {}, where, std::move(settings)),
      next.generation, version(op_record.op->index), old);
  if (old == nullptr || old->being_edited() || !entry->candidates().settings().cache) return entry;
  // Representatives are copied out under the lock; selecting runs plugin code and is done without it.
  std::vector<op::Call> known;
  {
    std::lock_guard lock(root().plans);
    const auto& classes = old->classes();
    const size_t n = std::min(classes.size(), kReplan);
    for (size_t i = classes.size() - n; i < classes.size(); ++i)
      known.push_back(classes[i].representative);
  }
  for (const op::Call& call : known) {
    Key key;
    if (!entry->recipe().fold(call.args(), call.flags(), key)) continue;
    const auto order = select::select(entry->candidates(), call.args(), call.count(), call.flags());
    if (order.empty()) continue;
    log_choice(*entry, order[0]);
    entry->insert(entry->plan(key, order), call, plans_of(*entry));
  }
  return entry;
}

bool Core::publish(Root& r, std::shared_ptr<const registry::State> state,
                   std::shared_ptr<const policy::ProcessPolicy> policy,
                   const std::set<std::string>* ops, std::shared_ptr<const Snapshot>& before) {
  const Snapshot* old = r.owner.get();
  auto next = Snapshot::make();
  next->generation = ++generation_;
  next->state = std::move(state);
  // The environment's names of backends mean what is registered now.
  if (!policy->reading->good.policy.backends.empty() || !policy->own_switches.empty() ||
      (reads_environment && dispatch::has_own_switches(*next->state)))
    policy = settled(*this, *next->state, *policy);
  next->policy = std::move(policy);
  next->forked = old != nullptr && old->forked;
  next->health = board.snapshot();
  const auto health_before = old != nullptr ? old->health : nullptr;
  std::vector<std::shared_ptr<Entry>> entries(next->state->index_count());
  for (const auto& [name, op_record] : next->state->op_records) {
    const uint32_t i = op_record->op->index;
    const bool had = old != nullptr && i < old->owners().size() && old->owners()[i] != nullptr;
    if (had && ops != nullptr && ops->count(name) == 0 &&
        !says_otherwise(health_before.get(), next->health.get(), name))
      entries[i] = old->owners()[i];
    else
      entries[i] = build_entry(*next, *op_record, had ? old->owners()[i].get() : nullptr);
  }
  if (&r != &root()) return false;
  next->set_entries(std::move(entries));
  before = std::exchange(r.owner, std::move(next));
  suspend_memos(before.get(), *r.owner);
  current.store(r.owner.get(), std::memory_order_release);
  renew_memos(before.get(), *r.owner);
  return true;
}

Core::OfIndex& Core::of_high_index(uint32_t index) const {
  Indices* at = &indices_;
  for (; index >= Indices::kCount; index -= Indices::kCount) {
    Indices* next = at->next.load(std::memory_order_acquire);
    if (next == nullptr) {
      auto* made = new Indices;
      if (at->next.compare_exchange_strong(next, made, std::memory_order_acq_rel))
        next = made;
      else
        delete made;
    }
    at = next;
  }
  return at->of[index];
}

void Core::suspend_memos(const Snapshot* before, const Snapshot& next) noexcept {
  for (uint32_t i = 0; i < next.owners().size(); ++i)
    if (before == nullptr || before->entry(i) != next.entry(i)) of_index(i).version.suspend();
  overlays_version.suspend();
}

void Core::renew_memos(const Snapshot* before, const Snapshot& next) noexcept {
  for (uint32_t i = 0; i < next.owners().size(); ++i) {
    MemoVersion& v = of_index(i).version;
    const bool changed_here = before == nullptr || before->entry(i) != next.entry(i);
    if (next.entry(i) != nullptr && (changed_here || v.read() == MemoVersion::kNever)) v.renew();
  }
  overlays_version.renew();
}

// `change(old, state, policy, ops)` fills in what is to be published; all ops where `ops` stays empty.
template <class F>
Status Core::edit(const F& change) {
  if (select::inside_select()) return inside_selection();
  for (bool done = false; !done;) {
    std::shared_ptr<const Snapshot> before;
    Root& r = root();
    std::lock_guard lock(r.write);
    std::shared_ptr<const registry::State> state = r.owner->state;
    std::shared_ptr<const policy::ProcessPolicy> policy = r.owner->policy;
    std::optional<std::set<std::string>> ops;
    YARD_RETURN_IF_ERROR(change(*r.owner, state, policy, ops));
    done = publish(r, std::move(state), std::move(policy), ops ? &*ops : nullptr, before);
  }
  end_states();
  settle_breakers();
  if (changed) changed();
  base::reclaimer().collect();
  return {};
}

namespace {

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
  for (const auto* hooks : {&state->hooks, &state->functions})
    for (const auto& hook : *hooks) all.insert(hook.get());
  return std::any_of(records.begin(), records.end(),
                     [&](const auto& r) { return all.count(r.get()) != 0; });
}

}  // namespace

Result<Ticket> Core::apply(const std::vector<registry::Step>& steps) {
  auto ticket = std::make_shared<TicketState>();
  bool inherited = false;
  YARD_RETURN_IF_ERROR(edit([&](const Snapshot& old, auto& state, auto&, auto& ops) -> Status {
    auto applied = registry::apply(*old.state, steps);
    if (!applied.ok()) return std::move(applied).status();
    if (check)
      if (Status refused = check(*old.state, *applied->state); !refused.ok()) return refused;
    ticket->removed.assign(applied->removed.begin(), applied->removed.end());
    inherited = holds_any(root().inherited.get(), applied->removed);
    state = applied->state;
    ops = std::move(applied->ops);
    return {};
  }));
  if (inherited) ticket->calls_ended = base::when_calls_end();
  return Ticket(std::move(ticket));
}

Status Core::edit_policy(
    const std::function<Status(const registry::State&, policy::ProcessPolicy&)>& change) {
  return edit([&](const Snapshot& old, auto& state, auto& next, auto&) -> Status {
    policy::ProcessPolicy p = *old.policy;
    YARD_RETURN_IF_ERROR(change(*state, p));
    next = settled(*this, *state, std::move(p));
    return {};
  });
}

Status Core::publish_health() {
  return edit([&](const Snapshot&, auto&, auto&, auto& ops) -> Status {
    ops.emplace();
    return {};
  });
}

void Core::catch_up() {
  if (select::inside_select()) return;
  { const std::lock_guard published(root().write); }  // whoever is at it has finished
  if (changed) changed();
}

Status Core::plan_anew() {
  return edit([](const Snapshot&, auto&, auto&, auto&) { return Status(); });
}

Status Core::set_policy(Policy policy) {
  YARD_RETURN_IF_ERROR(validate(policy));
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.set = policy;
    return Status();
  });
}

Status Core::set_environment(std::shared_ptr<const policy::Reading> reading) {
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.reading = reading;
    p.own_switches.clear();
    return Status();
  });
}

Status Core::set_file(std::shared_ptr<const policy::FileRules> file) {
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.file = file;
    p.rollout = nullptr;
    return file != nullptr ? check_modes(file->config, *p.modes) : Status();
  });
}

Status Core::set_labels(op::Labels labels) {
  return edit_policy([&](const auto&, policy::ProcessPolicy& p) {
    p.labels = labels;
    return Status();
  });
}

Status Core::start_over(const std::vector<registry::Step>& steps) {
  for (uint32_t i = 0; i < snapshot()->state->index_count(); ++i) of_index(i).needed = false;
  return edit([&](const Snapshot& old, auto& state, auto& next, auto&) -> Status {
    registry::State empty;
    empty.indices = old.state->indices;
    auto applied = registry::apply(empty, steps);
    if (!applied.ok()) return std::move(applied).status();
    state = applied->state;
    policy::ProcessPolicy p = *old.policy;
    p.set = {};
    p.mapped = {};
    next = settled(*this, *state, std::move(p));
    return {};
  });
}

std::shared_ptr<const Snapshot> Core::snapshot() const {
  base::ThreadRecord& thread = base::this_thread();
  for (;;) {
    base::Guard guard(thread);
    const Snapshot* s = guard.protect(current);
    // Expired only if it has been replaced since.
    if (auto held = s->weak_from_this().lock()) return held;
  }
}

void tidy() {
  // What is still in use must not be looked at again and again.
  static std::atomic<size_t> due{256};
  base::Reclaimer& reclaimer = base::reclaimer();
  if (reclaimer.pending() >= due.load(std::memory_order_relaxed))
    due.store(2 * reclaimer.collect() + 256, std::memory_order_relaxed);
}

RuntimeStats Core::stats() const {
  RuntimeStats out;
  const auto s = snapshot();
  Root& r = root();
  out.generation = s->generation;
  out.selections = r.selections.load(std::memory_order_relaxed);
  out.retired = base::reclaimer().pending();
  std::lock_guard lock(r.plans);
  for (const auto& e : s->owners())
    if (e != nullptr) out.plans += e->plan_count();
  out.overlays = s->overlay_count();
  return out;
}

}  // namespace yard::detail
