// SPDX-License-Identifier: Apache-2.0
// The life of a call. docs/life_of_a_call.md walks through this file.
#include "dispatch/call.h"

#include <fmt/format.h>
#include <yard/op.h>

#include "dispatch/hit.h"
#include "dispatch/recent.h"
#include "dispatch/tracer.h"
#include "dispatch/watched.h"

namespace yard::detail {

[[gnu::noinline]] Status::Rep* after_failure(base::ThreadRecord& thread, const Entry& e,
                                             const Core& core, const exec::Plan& plan,
                                             const yard_value_t* args, uint32_t flags, int32_t code,
                                             const char* message) {
  const exec::Request asked = request(e, core, args, flags, nullptr);
  exec::Outcome outcome;
  Status s = exec::execute_after_failure(thread, plan, asked, code, message, outcome);
  note_outcome(core, e, plan, asked, outcome);
  return s.release();
}

[[gnu::noinline]] Status::Rep* run_plan(base::ThreadRecord& thread, const Entry& e,
                                        const Core& core, const exec::Plan& plan,
                                        const yard_value_t* args, uint32_t flags) {
  if (e.contest().directions().observer != nullptr) observe(e, args, flags, nullptr);
  const std::shared_ptr<const policy::Rollout>& rollout = e.contest().directions().rollout;
  if (rollout == nullptr || thread.commit != nullptr)
    return run_watched(thread, core, e, plan, request(e, core, args, flags, nullptr)).release();
  if (!goes_on_trial(*rollout, e, nullptr, thread.scope_state))
    return run_tallied(thread, core, e, plan, request(e, core, args, flags, nullptr), *rollout,
                       false)
        .release();
  Status why;
  Core& open = const_cast<Core&>(core);
  Site* const site = open.attach(e.name(), kPacked, &why);
  if (site == nullptr) return why.release();
  return open.call_on_trial(*site, args, site->count, nullptr, rollout).release();
}

namespace {

[[gnu::noinline]] Status::Rep* slow(Site* site, const yard_value_t* args, uint32_t count) {
  return site->core->call_slow(*site, args, count, nullptr).release();
}

// Recipes of more than one word.
[[gnu::noinline]] const exec::Plan* find_long(const Entry& e, const yard_value_t* args,
                                              uint32_t flags) {
  Key key;
  return e.recipe().fold(args, flags, key) ? e.find(key) : nullptr;
}

[[gnu::always_inline]] inline const exec::Plan* find_plan(const Entry& e, const yard_value_t* args,
                                                          uint32_t flags) {
  if (!e.recipe().one_word()) [[unlikely]]
    return find_long(e, args, flags);
  return e.find_one(e.recipe().fold_first(args, flags));
}

// A call without options that is not like the thread's last one. Everything unusual leaves for call_slow,
// which does it all again.
template <bool kTyped>
[[gnu::always_inline]] inline Status::Rep* hit(Site* site, const yard_value_t* args,
                                               uint32_t count) {
  Core& core = *site->core;
  base::ThreadRecord& thread = base::this_thread();
  {
    base::Guard guard(thread);
    const uint64_t overlays = core.overlays_version.load(std::memory_order_acquire);
    const Snapshot* snapshot = guard.protect(core.current);
    const uint32_t index = site->index.load(std::memory_order_relaxed);
    const Entry* entry = snapshot->entry(index);
    uint32_t flags = 0;
    if (thread.scope != 0 && entry != nullptr) [[unlikely]] {
      // A traced call finds none, and so is traced by the slow way.
      entry = snapshot->overlay(index, scope_hash(thread.scope), {});
      if (entry != nullptr) flags = thread.scope_state->flags;
    }
    if (entry != nullptr) [[likely]] {
      guard.move_to_after_reading(entry);
      if (kTyped || entry->program().tags_fit(args, count)) [[likely]] {
        const int32_t aliased = entry->program().fits_live(args);
        if (aliased >= 0) [[likely]] {
          flags |= static_cast<uint32_t>(aliased);
          const uint64_t evictions = entry->evictions_before_finding();
          if (const exec::Plan* plan = find_plan(*entry, args, flags)) [[likely]] {
            if (aliased == 0)
              dispatch::remember(dispatch::recent_place(thread, site->id), *site, thread.scope,
                                 {*entry, *plan, flags, evictions, overlays}, args);
            return run_hit(thread, *entry, core, *plan, args, count, flags);
          }
        }
      }
    }
  }
  return slow(site, args, count);
}

[[gnu::noinline]] Status::Rep* packed_hit(Site* site, const yard_value_t* args, uint32_t count) {
  return hit<false>(site, args, count);
}

}  // namespace

Status::Rep* dispatch(Site* site, const yard_value_t* args) {
  return hit<true>(site, args, site->count);
}

Status::Rep* run_recent(Site* site, const Recent& last, const yard_value_t* args) {
  return run_hit(base::this_thread(), *static_cast<const Entry*>(last.entry), *site->core,
                 *static_cast<const exec::Plan*>(last.plan), args, site->count, last.flags);
}

Status::Rep* recent_failed(Site* site, const void* entry, const void* plan,
                           const yard_value_t* args, uint32_t flags, int32_t code) {
  base::ThreadRecord& thread = base::this_thread();
  return after_failure(thread, *static_cast<const Entry*>(entry), *site->core,
                       *static_cast<const exec::Plan*>(plan), args, flags, code, thread.message());
}

// The same short way that typed calls take inline.
Status::Rep* call_packed(Site* site, const yard_value_t* args, uint32_t count) {
  base::ThreadRecord& thread = base::this_thread();
  if (thread.recent != nullptr) [[likely]] {
    const Recent& last = recent(*thread.recent, site->id);
    if (last.is_of(site->id, thread.scope, args, count)) [[likely]] {
      base::Guard guard(thread);
      guard.announce(last.entry);
      if (last.is_current()) [[likely]]
        return run_hit(thread, *static_cast<const Entry*>(last.entry), *site->core,
                       *static_cast<const exec::Plan*>(last.plan), args, count, last.flags);
    }
  }
  return packed_hit(site, args, count);
}

Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options) {
  return site->core->call_slow(*site, args, site->count, &options).release();
}

Site* attach(Core& core, const char* name, const char* letters, Status* why) {
  return core.attach(name, letters, why);
}

op::Labels call_labels(const Options* o, const ScopeState* scope) {
  std::map<std::string, std::string, std::less<>> all;
  if (o != nullptr) all = o->labels;
  if (scope != nullptr) all.insert(scope->content.labels.begin(), scope->content.labels.end());
  return {all.begin(), all.end()};
}

op::Call scoped_call(const op::Program& program, const yard_value_t* args, const Options& o) {
  const ScopeState* scope = base::this_thread().scope_state;
  const uint32_t flags = call_flags(o) | (scope != nullptr ? scope->flags : 0);
  return op::Call::capture(program, args, flags, call_labels(&o, scope));
}

Result<Explanation> explain_site(Site* site, const yard_value_t* args, const Options& o) {
  auto s = site->core->snapshot();
  const registry::Family* family = s->state->find(site->name);
  if (site->core->first_need(site->name, family)) {
    s = site->core->snapshot();
    family = s->state->find(site->name);
  }
  if (family == nullptr)
    return Status(Code::kUnknownOp, fmt::format("op '{}' is not known any more", site->name));
  const WithFacts facts(args, site->count);
  const op::Program& program = *family->op->program;
  YARD_RETURN_IF_ERROR(program.misfit(facts.args(), site->count));
  const op::Call call = scoped_call(program, facts.args(), o);
  return site->core->explain(*family, call, o, *s);
}

}  // namespace yard::detail
