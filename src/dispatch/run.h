// SPDX-License-Identifier: Apache-2.0
// The steps of a call: entry, check, plan, kernel. look_up() (call.cc) takes them for calls without options. ResolvedCall
// (resolve.cc) takes them for every other call, and makes what one of them did not find. Bound handles (handles.cc)
// take the last one.
#pragma once

#include <yard/detail/call.h>

#include "base/random.h"
#include "base/reclaimer.h"
#include "base/stopwatch.h"
#include "dispatch/core.h"
#include "dispatch/memo.h"
#include "dispatch/nesting.h"
#include "dispatch/scope.h"
#include "exec/executor.h"

namespace yard::dispatch {

// 0. The depth (dispatch/nesting.h). Calls on inline slots, and so all that are inlined into callers, are never too deep.
// Before the guard.
[[gnu::always_inline]] inline Status::Rep* check_depth(base::ThreadRecord& thread, const Core& core,
                                                       std::string_view op) {
  if (thread.depth < ThreadHead::kInlineSlots) [[likely]]
    return nullptr;
  return refuse_if_too_deep(thread, core.max_call_depth.load(std::memory_order_relaxed), op);
}

// 1. The entry: that of the op, or what `overlay(snapshot, entry)` gives instead of it. The guard holds it when this
// returns, and the snapshot no more. Null: the op or the overlay is not there.
template <class F>
[[gnu::always_inline]] inline const Entry* find_entry(base::Guard& guard, const Core& core,
                                                      uint32_t index, const F& overlay) {
  const Snapshot* const snapshot = guard.protect(core.published.current);
  const Entry* entry = snapshot->entry(index);
  if (entry != nullptr) [[likely]]
    entry = overlay(*snapshot, entry);
  if (entry != nullptr) [[likely]]
    guard.move_to_after_reading(entry);
  return entry;
}

// 2. The check: -1 if the call does not fit the schema or lacks data, else its YARD_CALL_ALIASED flag. `args` have facts.
[[gnu::always_inline]] inline int32_t check_args(const op::Program& program,
                                                 const yard_value_t* args, uint32_t count) {
  return program.tags_fit(args, count) ? program.fits_live(args) : -1;
}

[[gnu::noinline]] inline const exec::Plan* find_plan_by_long_key(const Entry& e,
                                                                 const yard_value_t* args,
                                                                 uint32_t flags) {
  Key key;
  return e.recipe().fold(args, flags, key) ? e.find(key) : nullptr;
}
// 3. The plan, by the call's key. Returns null if there is none yet, or if the key would be too long.
[[gnu::always_inline]] inline const exec::Plan* find_plan(const Entry& e, const yard_value_t* args,
                                                          uint32_t flags) {
  const exec::Plan* plan;
  if (e.recipe().one_word()) [[likely]]
    plan = e.find_one(e.recipe().fold_first(args, flags));
  else
    plan = find_plan_by_long_key(e, args, flags);
  if (plan != nullptr) [[likely]]
    plan->note_use();
  return plan;
}

// 4. The kernel of a direct plan: nothing is to be done before or after. The message of a failure is left in `error`.
[[gnu::always_inline]] inline int32_t run_direct(char* error, const Core& core,
                                                 const exec::Plan& plan, const yard_value_t* args,
                                                 uint32_t count, uint32_t flags) {
  yard_call_t call;
  start_call(call, error, flags, core.host, plan.self);
  return call_kernel(call, [&] { return plan.run(&call, args, count); });
}

// `args` have facts; `given` are the caller's own.
inline exec::Request request(const Entry& e, const Core& core, const yard_value_t* args,
                             const yard_value_t* given, uint32_t flags, const Options* options) {
  exec::Request r{.op = e.name().c_str(),
                  .host = core.host,
                  .args = args,
                  .count = e.program().arg_count(),
                  .flags = flags,
                  .strict = e.strict(),
                  .writes_inputs = e.program().has_inout(),
                  .options = options,
                  .given = given,
                  .program = &e.program(),
                  .states = core.states_for(options)};
  r.save = e.candidates().saves_inputs();
  r.checker = e.candidates().settings().watch.checker.get();
  r.labels = &e.candidates().settings().labels;
  return r;
}

// Continues after the first kernel of a plan has failed with `code`, and reports to health. Inside the guard.
Status fall_back(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                 const exec::Plan& plan, const exec::Request& request, int32_t code,
                 const char* message);
// The same for a direct plan, from a call's own arguments.
Status::Rep* after_failure(base::ThreadRecord& thread, const Entry& e, const Core& core,
                           const exec::Plan& plan, const Cells& cells, uint32_t flags, int32_t code,
                           const char* message);

// Times one call in about ThreadHead::kSampledOneIn. Restarts the thread's countdown first: kernels may call ops.
class SampledTime {
 public:
  explicit SampledTime(base::ThreadRecord& thread) noexcept {
    constexpr auto kMean = static_cast<uint64_t>(ThreadHead::kSampledOneIn);
    thread.until_sample = static_cast<int32_t>(kMean / 2 + base::thread_random() % (kMean + 1));
    watch_ = base::Stopwatch::start();
  }
  // `series` may be null.
  void add_to(health::Series* series) noexcept {
    const auto ns = static_cast<uint64_t>(watch_.lap());
    if (series != nullptr) series->add_sample(ns);
  }

 private:
  base::Stopwatch watch_;
};

// Runs a plan that is not direct, or times a call of one that is. Inside the guard.
Status::Rep* run_plan(base::ThreadRecord& thread, const Entry& e, const Core& core,
                      const exec::Plan& plan, const Cells& cells, uint32_t flags, bool bound);

// Fills in all of a route but what keeps it valid: entry, version and flags.
void fill_route(Route& route, const Core& core, const exec::Plan& plan) noexcept;

// The aliasing of a call of a bound handle: other data pointers may overlap otherwise than those it was bound to.
uint32_t bound_flags(const Entry& e, const Cells& cells) noexcept;

// Runs the plan of a hit, after count_down(). Inside the guard. `flags` of a bound handle are those of its binding: all
// that a direct plan needs as long as its kernel succeeds.
[[gnu::always_inline]] inline Status::Rep* run_hit(base::ThreadRecord& thread, const Entry& e,
                                                   const Core& core, const exec::Plan& plan,
                                                   const Cells& cells, uint32_t flags,
                                                   bool bound = false) {
  if (!plan.direct || thread.is_timed()) [[unlikely]]
    return run_plan(thread, e, core, plan, cells, flags, bound);
  char* const error = thread.message();
  const int32_t code = run_direct(error, core, plan, cells.at, cells.count, flags);
  if (code == YARD_OK) [[likely]] {
    detail::count(counter(thread, plan.counter));
    return nullptr;
  }
  return after_failure(thread, e, core, plan, cells, bound ? bound_flags(e, cells) : flags, code,
                       error);
}

// Runs the plan of a route that is current. Inside the guard.
[[gnu::always_inline]] inline Status::Rep* run_current(base::ThreadRecord& thread, const Site& site,
                                                       const Route& route, const Cells& cells) {
  thread.count_down();  // a call that is timed stays so
  return run_hit(thread, *static_cast<const Entry*>(route.entry), *site.core,
                 *static_cast<const exec::Plan*>(route.plan), cells, route.flags);
}

// ---- Running a plan under observation ----
// Probes of half-open kernels before, observers and health after, times of rules in rollout around it.

// Runs the kernel of a plan that observed. Inside the guard.
Status run_observed(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                    const exec::Plan& plan, const yard_value_t* args, const yard_value_t* given,
                    uint32_t flags);
// Runs a plan. Inside the guard. `opened`: set to what note_outcome() returns.
Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome,
                   const exec::Failure** opened = nullptr);
inline Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                          const exec::Plan& plan, const exec::Request& request) {
  exec::Outcome ignored;
  return run_watched(thread, core, entry, plan, request, ignored);
}

// Reports the outcome of a call to health, and publishes what it has changed. Returns the failure of `outcome` that has
// opened a breaker; null if none has.
const exec::Failure* note_outcome(const Core& core, const Entry& entry,
                                  const exec::Request& request, const exec::Outcome& outcome);

// ---- Rollouts ----
// Whether a call takes the rules in rollout.
bool takes_rollout(const policy::Rollout& rollout, const Entry& entry, const Options* options,
                   const ScopeState* scope);
// run_watched(), timed for the comparison of the rules in rollout with those in force.
Status run_tallied(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, const exec::Request& request,
                   const policy::Rollout& rollout, bool in_rollout);
// For a call that found no kernel under the rules in rollout.
void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why);

}  // namespace yard::dispatch
