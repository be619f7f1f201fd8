// SPDX-License-Identifier: Apache-2.0
// How a call without a plan gets one: one thread selects, the others that need the same wait for it.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "dispatch/call.h"
#include "select/explain.h"

namespace yard::detail {

Result<exec::Plan::Ptr> Core::fresh_plan(const Entry& entry, const Key& key, const op::Call& call) {
  // A verifier that calls its own op on the call it is asked about would ask itself without end.
  constexpr int kDeepest = 16;
  if (select::select_depth() >= kDeepest)
    return Status(
        Code::kWouldDeadlock,
        fmt::format("op '{}': probes, verifiers or cost hints that are asked to choose its "
                    "kernel call ops whose choice asks them again",
                    entry.name()));
  root().selections.fetch_add(1, std::memory_order_relaxed);
  const auto order = select::select(entry.candidates(), call.args(), call.count(), call.flags());
  if (order.empty() && entry.candidates().unmapped())
    return Status(
        Code::kUnmapped,
        fmt::format("op '{}' is called in static mode and has no static kernel", entry.name()));
  if (order.empty()) return select::no_kernel(entry.candidates(), call);
  log_choice(entry, order[0]);
  return entry.plan(key, order);
}

void log_choice(const Entry& entry, uint16_t candidate) {
  if (!base::log_enabled("select", LogLevel::kInfo)) return;
  const registry::Kernel& k = *entry.candidates().all()[candidate].kernel;
  const std::string& vendor = k.backend->vendor;
  base::log(LogLevel::kInfo, "select",
            fmt::format("Op '{}' using '{}' (kind={}, vendor={})", entry.name(), k.id,
                        to_string(static_cast<Kind>(k.d.kind)),
                        vendor.empty() ? "none" : vendor.c_str()));
}

// A verifier may end its thread, and memory may run out: those who wait for the flight then select themselves.
class Core::Landing {
 public:
  Landing(const Core& core, Root& root, std::shared_ptr<Flight> flight)
      : core_(core), root_(root), flight_(std::move(flight)) {}
  ~Landing() {
    if (&root_ != &core_.root() || flight_->done) return;
    const std::lock_guard lock(root_.plans);
    flight_->done = true;
    std::erase(root_.flights, flight_);
    root_.landed.notify_all();
  }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  const Core& core_;
  Root& root_;
  const std::shared_ptr<Flight> flight_;
};

Result<exec::Plan::Ptr> Core::make_plan(const Entry& entry, const Key& key, const op::Call& call) {
  if (!entry.candidates().settings().cache.enabled) return fresh_plan(entry, key, call);
  Root& r = root();
  const size_t most = plans_of(entry);
  auto flight = std::make_shared<Flight>();
  {
    std::unique_lock lock(r.plans);
    if (entry.find(key) != nullptr) return exec::Plan::Ptr();
    const auto same = [&](const std::shared_ptr<Flight>& f) {
      return f->entry == &entry &&
             std::equal(f->key.begin(), f->key.end(), key.w, key.w + key.words);
    };
    const auto it = std::find_if(r.flights.begin(), r.flights.end(), same);
    // Plugin code that calls ops while it is being asked must not wait: the one it would wait for may
    // be waiting for it. It selects for itself.
    if (it != r.flights.end() && !select::inside_select()) {
      const std::shared_ptr<Flight> other = *it;
      r.landed.wait(lock, [&] { return other->done; });
      if (!other->status.ok()) return other->status;
      return exec::Plan::Ptr();
    }
    flight->entry = &entry;
    flight->key.assign(key.w, key.w + key.words);
    r.flights.push_back(flight);
  }
  Landing landing(*this, r, flight);
  auto plan = fresh_plan(entry, key, call);
  // A verifier that forked: in the child the locks of this root may be held by nobody who could let go,
  // and the entry may have been left half changed.
  if (&r != &root()) return plan;
  // A call that never ends holds all plans that its entry lets go of meanwhile. When those have become
  // many the entry learns no more.
  bool full;
  {
    std::lock_guard lock(r.plans);
    full = entry.plan_count() >= most;
  }
  const size_t many = 4 * most + 256;
  const bool store = plan.ok() && !(full && base::reclaimer().pending() > many &&
                                    base::reclaimer().collect() > many);
  {
    std::lock_guard lock(r.plans);
    // Entries are immutable but for their plans, which this lock guards.
    if (store)
      const_cast<Entry&>(entry).insert(*std::move(plan), call, most);
    else if (!plan.ok())
      flight->status = plan.status();
    flight->done = true;
    std::erase(r.flights, flight);
    r.landed.notify_all();
  }
  if (!store) return plan;
  if (full) tidy();
  return exec::Plan::Ptr();
}

std::optional<std::chrono::steady_clock::time_point> Core::sweep(
    std::chrono::steady_clock::time_point now) {
  const auto s = snapshot();
  const policy::FileRules* file = s->policy->file.get();
  const auto lifetime = file != nullptr ? file->config.settings.cache.lifetime : std::nullopt;
  if (!lifetime) return std::nullopt;
  size_t gone = 0;
  {
    const std::lock_guard lock(root().plans);
    for (const auto& e : s->owners())
      if (e != nullptr) gone += e->sweep(now - *lifetime);
    for (const auto& e : s->overlays())
      gone += const_cast<Entry&>(*e).sweep(now - *lifetime);  // immutable but for its plans
  }
  if (gone > 0) tidy();
  return now + std::clamp<std::chrono::nanoseconds>(*lifetime / 4, std::chrono::milliseconds(1),
                                                    std::chrono::seconds(60));
}

const exec::Plan* Core::pin_plan(const Entry& entry, const Key& key, const void* node) {
  std::lock_guard lock(root().plans);
  const exec::Plan* plan = entry.find(key);
  if (plan != nullptr) {
    plan->pins.fetch_add(1, std::memory_order_relaxed);
    entry.add_handle(node);
  }
  return plan;
}

void Core::unpin_plan(const Entry& entry, const exec::Plan* plan, const void* node) {
  if (plan == nullptr) return;
  std::lock_guard lock(root().plans);
  plan->pins.fetch_sub(1, std::memory_order_relaxed);
  entry.drop_handle(node);
}

std::shared_ptr<const Entry> Core::overlay(const std::shared_ptr<const Snapshot>& s, uint32_t index,
                                           const PolicyOverride& extra) {
  const Entry* global = s->entry(index);
  if (global == nullptr) return nullptr;
  const auto op_record = s->state->op_records.find(global->name())->second;
  const bool in_rollout = extra.key.rollout && s->policy->rollout != nullptr;
  const policy::ProcessPolicy& said = in_rollout ? s->policy->rollout->next() : *s->policy;
  select::OpSettings settings = global->candidates().settings();
  if (in_rollout) {
    auto health = std::move(settings.health);
    settings = settings_for(said, *op_record);
    settings.health = std::move(health);
  }
  auto entry = Entry::make(
      select::CandidateSet::make(op_record, merge(said.in_force, extra.policy), extra.constraints,
                                 {host, s->forked}, settings_for(std::move(settings), extra)),
      s->generation, overlays_version, global, s.get());
  entry->overlay_key = extra.key;
  if (extra.key.options != nullptr) {
    entry->overlay_options = *extra.key.options;
    entry->overlay_options.result = nullptr;
    entry->overlay_key.options = &entry->overlay_options;
  }
  auto kept = std::make_shared<PolicyOverride>(extra);
  kept->key = entry->overlay_key;
  entry->policy_override = std::move(kept);
  std::shared_ptr<Entry> forgotten;
  {
    std::lock_guard lock(root().plans);
    forgotten = s->put_overlay(index, entry);
  }
  if (forgotten != nullptr) overlays_version.invalidate();
  forgotten.reset();
  tidy();
  return entry;
}

namespace {

// What options say about the arguments' op: a kernel that does not exist cannot be forced.
Status check_force(const registry::OpRecord& op_record, const std::string& force) {
  if (force.empty() || op_record.kernels.count(force) != 0) return {};
  std::vector<std::string> ids;
  for (const auto& [id, k] : op_record.kernels) ids.push_back(id);
  return Status(Code::kNotFound,
                fmt::format("op '{}' has no kernel '{}' to force{}", op_record.op->name, force,
                            base::did_you_mean(force, ids)));
}

}  // namespace

Status check_options(const registry::OpRecord& op_record, const Options& o) {
  YARD_RETURN_IF_ERROR(check_force(op_record, o.force));
  if (o.policy) YARD_RETURN_IF_ERROR(validate(*o.policy));
  if (o.mode == Mode::kProgram || (o.mode && !o.mode_name.empty()))
    return Status(Code::kInvalidArgument,
                  "a mode that the program has added is said by mode_name alone");
  for (const std::string& d : o.deny)
    if (d.empty())
      return Status(Code::kInvalidArgument, "the call's deny list holds an empty pattern");
  return {};
}

uint32_t call_flags(const Options& o) noexcept {
  return (o.deterministic ? YARD_CALL_DETERMINISTIC : 0) | (o.capturing ? YARD_CALL_CAPTURING : 0) |
         (o.inference ? YARD_CALL_INFERENCE : 0);
}

namespace {

// "environment" becomes "environment (YARD_PREFER)".
void name_variable(const policy::Reading& reading, PolicyNote& note) {
  const auto variable = reading.good.sources.find(note.field);
  const size_t at = note.source.find("environment");
  if (variable != reading.good.sources.end() && at != std::string::npos)
    note.source.insert(at + std::string_view("environment").size(), " (" + variable->second + ")");
}

}  // namespace

Result<Explanation> Core::explain(const registry::OpRecord& op_record, const op::Call& call,
                                  const Options& o, const Snapshot& s) const {
  YARD_RETURN_IF_ERROR(check_options(op_record, o));
  const ScopeState* scope = base::this_thread().scope_state;
  const PolicyOverride extra = make_override(&o, scope, overlay_key(&o, scope, true));
  if (scope != nullptr && !scope->problem.ok()) return scope->problem;
  YARD_RETURN_IF_ERROR(check_override(extra, *s.policy->modes));
  const Policy none;
  const policy::FileRules* file = s.policy->file.get();
  const policy::Source sources[] = {{"file", file != nullptr ? &file->said : &none},
                                    {"environment", &s.policy->environment},
                                    {"process", &s.policy->set},
                                    {"scope", scope != nullptr ? &scope->content.policy : &none},
                                    {"call", o.policy ? &*o.policy : &none}};
  select::ExplainRequest q{s.state->op_records.find(op_record.op->name)->second,
                           &call,
                           extra.constraints,
                           {host, s.forked},
                           sources,
                           settings_for(settings_for(s, op_record), extra)};
  Explanation e = select::explain(q);
  e.generation = s.generation;
  for (PolicyNote& n : e.policy) name_variable(*s.policy->reading, n);
  return e;
}

Result<Explanation> Core::explain(const op::CallSpec& spec, const Options& o) const {
  auto s = snapshot();
  const registry::OpRecord* op_record = s->state->find(spec.op);
  if (first_need(spec.op, op_record)) {
    s = snapshot();
    op_record = s->state->find(spec.op);
  }
  if (op_record == nullptr) return unknown_op(*s->state, spec.op);
  op::CallSpec with_flags = spec;
  const ScopeState* scope = base::this_thread().scope_state;
  with_flags.flags |= call_flags(o) | (scope != nullptr ? scope->flags : 0);
  // Those of the text are the call's own.
  Options labelled = o;
  labelled.labels.insert(spec.labels.begin(), spec.labels.end());
  with_flags.labels = call_labels(&labelled, scope);
  auto call = op::Call::from_spec(*op_record->op->program, with_flags, &op_record->op->d);
  if (!call.ok()) return std::move(call).status();
  return explain(*op_record, *call, labelled, *s);
}

}  // namespace yard::detail
