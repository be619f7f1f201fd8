// SPDX-License-Identifier: Apache-2.0
#include "dispatch/planner.h"

#include <fmt/format.h>

#include "base/lists.h"
#include "base/results.h"
#include "base/tasks.h"
#include "base/text.h"
#include "dispatch/call.h"
#include "select/reasons.h"

namespace yard::dispatch {
namespace {

constexpr size_t kFewestPlans = 4;
// A thread waits this long for another thread's selection, and then selects for itself.
constexpr auto kLongestWait = std::chrono::seconds(1);

void log_choice(const Entry& entry, uint16_t candidate) {
  if (!base::log_enabled("select", LogLevel::kInfo)) return;
  const registry::Kernel& k = *entry.candidates().all()[candidate].kernel;
  const std::string& vendor = k.backend->vendor;
  base::log(LogLevel::kInfo, "select",
            fmt::format("Op '{}' using '{}' (kind={}, vendor={})", entry.name(), k.id,
                        to_string(static_cast<Kind>(k.d.kind)),
                        vendor.empty() ? "none" : vendor.c_str()));
}

}  // namespace

Planner::Planner(Core& core, size_t plans_per_op)
    : core_(core), plans_per_op_(std::max(plans_per_op, kFewestPlans)) {}

size_t Planner::limit_of(const Entry& entry) const noexcept {
  const size_t said = entry.candidates().settings().cache.plans;
  return said != 0 ? std::max(said, kFewestPlans) : plans_per_op_;
}

// During a rollout, calls under either rule file run the canaries of both, their own first.
std::shared_ptr<registry::ResultChecker> Planner::make_result_checker(
    const policy::ProcessPolicy& policy, bool in_rollout,
    const std::shared_ptr<const registry::OpRecord>& op_record, const select::ProcessState& where) {
  std::vector<CanaryRule> rules;
  const auto add_first = [&](const policy::FileRules* file) {
    if (file != nullptr)
      rules.insert(rules.begin(), file->config.canary.begin(), file->config.canary.end());
  };
  const auto* next = policy.rollout != nullptr ? policy.rollout->next().file.get() : nullptr;
  add_first(in_rollout ? policy.file.get() : next);
  add_first(in_rollout ? next : policy.file.get());
  return core_.services().make_result_checker(rules, op_record, where);
}

std::shared_ptr<Entry> Planner::make_entry(const Snapshot& next,
                                           const registry::OpRecord& op_record, const Entry* old) {
  auto parts = *parts_for(core_, next, *next.policy, op_record.op->name);
  parts.settings.watch.checker =
      make_result_checker(*next.policy, false, parts.op_record, parts.process);
  return Entry::share(
      std::make_unique<Entry>(select::CandidateSet(std::move(parts)), next.generation,
                              core_.published.version(op_record.op->index), core_.calls, old));
}

Result<std::shared_ptr<const Entry>> Planner::overlay(const std::shared_ptr<const Snapshot>& s,
                                                      const Entry& global, const Options* options,
                                                      const ScopeState* scope,
                                                      const OverlayKey& key) {
  if (options != nullptr)
    YARD_RETURN_IF_ERROR(check_options(global.candidates().op_record(), *options));
  const bool in_rollout = key.rollout && s->policy->rollout != nullptr;
  ScopeContent content = scope != nullptr ? scope->content : ScopeContent();
  YARD_ASSIGN_OR_RETURN(auto parts,
                        parts_for(core_, *s, in_rollout ? s->policy->rollout->next() : *s->policy,
                                  global.name(), key, content));
  parts.settings.watch.checker =
      in_rollout ? make_result_checker(*s->policy, true, parts.op_record, parts.process)
                 : global.candidates().settings().watch.checker;
  auto made =
      std::make_unique<Entry>(select::CandidateSet(std::move(parts)), s->generation,
                              core_.published.overlays_version, core_.calls, &global, s.get());
  made->overlay_key = key;
  if (key.options != nullptr) {
    made->overlay_options = *key.options;
    made->overlay_options.result = nullptr;
    made->overlay_key.options = &made->overlay_options;
  }
  made->overlay_scope = std::move(content);
  auto entry = Entry::share(std::move(made));
  std::shared_ptr<Entry> replaced;
  {
    const std::lock_guard lock(lock_);
    replaced = s->put_overlay(entry);
  }
  if (replaced != nullptr) core_.published.overlays_version.invalidate();
  replaced.reset();
  collect_if_due();
  return std::shared_ptr<const Entry>(std::move(entry));
}

Result<exec::Plan::Ptr> Planner::fresh_plan(const Entry& entry, const Key& key,
                                            const op::Call& call) {
  // A verifier that repeats the call it is asked about would recurse without end.
  constexpr int kDeepest = 16;
  if (select::select_depth() >= kDeepest)
    return Status(
        Code::kWouldDeadlock,
        fmt::format("op '{}': probes, verifiers or cost hints that are asked to choose its "
                    "kernel call ops whose choice asks them again",
                    entry.name()));
  selections_.fetch_add(1, std::memory_order_relaxed);
  const auto order = select::select(entry.candidates(), call.args(), call.count(), call.flags());
  if (order.empty() && entry.candidates().unmapped())
    return Status(
        Code::kUnmapped,
        fmt::format("op '{}' is called in static mode and has no static kernel", entry.name()));
  if (order.empty()) return select::no_kernel(entry.candidates(), call);
  log_choice(entry, order[0]);
  auto plan = entry.plan(key, order, call);
  plan->call_class->misses.fetch_add(1, std::memory_order_relaxed);
  return plan;
}

Result<exec::Plan::Ptr> Planner::make_plan(const Entry& entry, const Key& key,
                                           const op::Call& call) {
  base::run_due_at_call();
  if (!entry.candidates().settings().cache.enabled) return fresh_plan(entry, key, call);
  const size_t limit = limit_of(entry);
  auto mine = std::make_shared<Pending>();
  {
    std::unique_lock lock(lock_);
    if (entry.find(key) != nullptr) return exec::Plan::Ptr();
    mine->entry = &entry;
    mine->key.assign(key.w, key.w + key.words);
    const auto it = std::ranges::find_if(
        pending_, [&](const auto& p) { return p->entry == mine->entry && p->key == mine->key; });
    // Plugin code inside a selection does not wait, because the other selection may wait for it.
    if (it != pending_.end() && !select::inside_select()) {
      const std::shared_ptr<Pending> other = *it;
      // Limit the wait, because a verifier may be waiting for this thread.
      if (finished_.wait_for(lock, kLongestWait, [&] { return other->done; })) {
        YARD_RETURN_IF_ERROR(other->status);
        return exec::Plan::Ptr();
      }
    }
    pending_.push_back(mine);
  }
  const auto end = [this](std::shared_ptr<Pending>* pending) {
    const std::lock_guard lock(lock_);
    (*pending)->done = true;
    std::erase(pending_, *pending);
    finished_.notify_all();
  };
  bool full = false;
  const auto select_and_store = [&]() -> Result<exec::Plan::Ptr> {
    // Even if a verifier ends the thread, the selection ends, and waiting threads do it themselves.
    const std::unique_ptr<std::shared_ptr<Pending>, decltype(end)> selection(&mine, end);
    auto plan = fresh_plan(entry, key, call);
    // A call that never ends holds all plans that its entry evicts. Do not store too many.
    const size_t many = 4 * limit + 256;
    const bool crowded = base::reclaimer().pending() > many && base::reclaimer().collect() > many;
    const std::lock_guard lock(lock_);
    full = entry.plan_count() >= limit;
    if (!plan.ok()) mine->status = plan.status();
    if (!plan.ok() || (full && crowded)) return plan;
    // Entries are immutable except for their plans, which the lock guards.
    const_cast<Entry&>(entry).insert(key, *std::move(plan), limit);
    entry.known_calls().add(entry.program(), call);
    return exec::Plan::Ptr();
  };
  auto plan = select_and_store();
  free_some_old_plans();
  if (full) collect_if_due();
  return plan;
}

const exec::Plan* Planner::pin_plan(const Entry& entry, const Key& key, const void* node) {
  const std::lock_guard lock(lock_);
  const exec::Plan* plan = entry.find(key);
  if (plan != nullptr) {
    plan->pins.fetch_add(1, std::memory_order_relaxed);
    plan->note_use();
    entry.add_handle(node);
  }
  return plan;
}

void Planner::unpin_plan(const Entry& entry, const exec::Plan* plan, const void* node) {
  if (plan == nullptr) return;
  const std::lock_guard lock(lock_);
  plan->pins.fetch_sub(1, std::memory_order_relaxed);
  entry.drop_handle(node);
}

std::optional<std::chrono::steady_clock::time_point> Planner::sweep(
    std::chrono::steady_clock::time_point now) {
  const auto s = core_.snapshot();
  const policy::FileRules* file = s->policy->file.get();
  const auto lifetime = file != nullptr ? file->config.settings.cache.lifetime : std::nullopt;
  if (!lifetime) return std::nullopt;
  size_t evicted = 0;
  {
    const std::lock_guard lock(lock_);
    for (const auto& e : s->all_entries()) evicted += e->sweep(now - *lifetime);
  }
  if (evicted > 0) collect_if_due();
  return now + std::clamp<std::chrono::nanoseconds>(*lifetime / 4, std::chrono::milliseconds(1),
                                                    std::chrono::seconds(60));
}

std::vector<Planner::KnownCall> Planner::known_calls(const Entry& entry) const {
  std::vector<KnownCall> to;
  const std::lock_guard lock(lock_);
  for (const auto& [hash, call] : entry.known_calls().all) {
    to.push_back({call});
    Key key;
    if (!entry.recipe().fold(call->args(), call->flags(), key)) continue;
    if (const exec::Plan* const plan = entry.find(key))
      to.back() = {call, plan->attempts[0].kernel, plan->modes[0], plan->direct};
  }
  return to;
}

std::vector<std::shared_ptr<Entry>> Planner::all_entries(const Snapshot& s) const {
  const std::lock_guard lock(lock_);
  return s.all_entries();
}

RuntimeStats Planner::stats() const {
  RuntimeStats to;
  const auto s = core_.snapshot();
  to.generation = s->generation;
  to.selections = selections_.load(std::memory_order_relaxed);
  to.retired = base::reclaimer().pending();
  const std::lock_guard lock(lock_);
  for (const auto& e : s->all_entries())
    if (e->overlay_key.hash == 0)
      to.plans += e->plan_count();
    else
      ++to.overlays;
  return to;
}

void collect_if_due() {
  // Collecting looks at objects in use again, so wait until their number has doubled.
  static std::atomic<size_t> due{256};
  base::Reclaimer& reclaimer = base::reclaimer();
  if (reclaimer.pending() >= due.load(std::memory_order_relaxed))
    due.store(2 * reclaimer.collect() + 256, std::memory_order_relaxed);
}

Status check_options(const registry::OpRecord& op_record, const Options& o) {
  if (!o.force.empty() && op_record.kernels.count(o.force) == 0)
    return Status(Code::kNotFound,
                  fmt::format("op '{}' has no kernel '{}' to force{}", op_record.op->name, o.force,
                              base::did_you_mean(o.force, base::keys(op_record.kernels))));
  if (o.policy) YARD_RETURN_IF_ERROR(validate(*o.policy));
  if (o.mode == Mode::kProgram || (o.mode && !o.mode_name.empty()))
    return Status(Code::kInvalidArgument,
                  "invalid mode: expected a built-in mode, or mode_name alone for one that the "
                  "program has added");
  for (const std::string& d : o.deny)
    if (d.empty())
      return Status(Code::kInvalidArgument, "the call's deny list holds an empty pattern");
  return {};
}

static Result<Explanation> explain_checked(const Core& core, const FoundOp& op,
                                           const op::Call& call, const Options& o) {
  const ScopeState* scope = base::this_thread().scope_state;
  const registry::OpRecord& op_record = *op.record;
  const Snapshot& s = *op.snapshot;
  YARD_RETURN_IF_ERROR(check_options(op_record, o));
  if (scope != nullptr && !scope->problem.ok()) return scope->problem;
  const Policy none;
  const policy::FileRules* file = s.policy->file.get();
  const policy::Source sources[] = {{"file", file != nullptr ? &file->said : &none},
                                    {"environment", &s.policy->environment},
                                    {"process", &s.policy->set},
                                    {"scope", scope != nullptr ? &scope->content.policy : &none},
                                    {"call", o.policy ? &*o.policy : &none}};
  YARD_ASSIGN_OR_RETURN(auto parts, parts_for(core, s, *s.policy, op_record.op->name,
                                              OverlayKey::make(&o, scope, true),
                                              scope != nullptr ? scope->content : ScopeContent()));
  Explanation e = select::explain(select::CandidateSet(std::move(parts)), call, sources);
  e.generation = s.generation;
  // Changes "environment" to "environment (YARD_PREFER)".
  constexpr std::string_view kWord = "environment";
  const auto& variables = s.policy->reading->good.sources;
  for (Explanation::PolicyNote& n : e.policy)
    if (const auto v = variables.find(n.field); v != variables.end())
      if (const size_t at = n.source.find(kWord); at != n.source.npos)
        n.source.insert(at + kWord.size(), " (" + v->second + ")");
  return e;
}

Result<Explanation> explain_call(const Core& core, const FoundOp& op, const Cells& cells,
                                 const Options& o) {
  const op::Program& program = *op.record->op->program;
  const WithFacts facts(cells);
  YARD_RETURN_IF_ERROR(program.explain_mismatch(facts.args(), cells.count));
  const ScopeState* scope = base::this_thread().scope_state;
  const auto call =
      op::Call::capture(program, facts.args(), call_flags(&o, scope), call_labels(&o, scope));
  return explain_checked(core, op, call, o);
}

Result<Explanation> explain_call(const Core& core, const op::CallSpec& spec, const Options& o) {
  YARD_ASSIGN_OR_RETURN(const auto found, core.sites.find(spec.op));
  const registry::Op& op = *found.record->op;
  op::CallSpec with_flags = spec;
  const ScopeState* scope = base::this_thread().scope_state;
  with_flags.flags |= call_flags(&o, scope);
  // Labels in the text count as the call's own.
  Options labelled = o;
  labelled.labels.insert(spec.labels.begin(), spec.labels.end());
  with_flags.labels = call_labels(&labelled, scope);
  YARD_ASSIGN_OR_RETURN(auto call, op::Call::from_spec(*op.program, with_flags, &op.d));
  return explain_checked(core, found, call, labelled);
}

}  // namespace yard::dispatch
