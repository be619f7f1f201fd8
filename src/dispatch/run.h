// SPDX-License-Identifier: Apache-2.0
// Running the plan of a call: the kernel alone, or the executor with all that watches a call.
#pragma once

#include "dispatch/core.h"
#include "dispatch/memo.h"

namespace yard::dispatch {

// A call whose plan was found. The guard of the call holds the entry.
struct PlannedCall {
  base::ThreadRecord& thread;
  Site& site;
  const Entry& entry;
  const exec::Plan& plan;
  Cells cells;
  uint32_t flags;      // YARD_CALL_*
  bool bound = false;  // by a bound handle: the aliasing in `flags` is that of its binding
  const yard_value_t* args = nullptr;  // the cells with facts; null if they were not computed
  const Options* options = nullptr;
  const policy::Rollout* rollout = nullptr;  // whose rules apply to the call
  bool selected = false;                     // the call had no plan
  int64_t select_ns = 0;
  int64_t started = 0;  // when the plan was found; only where there is a record to fill in
};

// Returns an error if the call is nested too deep. Called before the guard is made.
[[gnu::always_inline]] inline Status::Rep* check_depth(base::ThreadRecord& thread,
                                                       const Site& site) {
  if (thread.depth < ThreadHead::kInlineSlots) [[likely]]
    return nullptr;
  return refuse_if_too_deep(thread, site.core->max_call_depth.load(std::memory_order_relaxed),
                            site.name);
}

// Begins the record of a call. Returns the time.
int64_t begin_record(ResultRecord& record) noexcept;
// Notes the plan of a call that began at `start`. Returns the time.
int64_t note_plan(ResultRecord& record, const Entry& entry, const exec::Plan& plan, int64_t start);
// What the executor needs of a call. `args` have facts.
exec::Request request(const PlannedCall& call, const yard_value_t* args);
// Runs a plan, after count_down().
Status run(const PlannedCall& call);
// run() where std::bad_alloc must not pass. Returns null on success.
Status::Rep* run_plan(const PlannedCall& call);
// Continues after the kernel of a direct plan has failed, and reports to health. Returns null if
// another kernel served the call.
Status::Rep* after_failure(const PlannedCall& call, int32_t code, const char* message);

// Runs a plan that was known.
[[gnu::always_inline]] inline Status::Rep* run_hit(base::ThreadRecord& thread, Site& site,
                                                   const Entry& entry, const exec::Plan& plan,
                                                   const Cells& cells, uint32_t flags,
                                                   bool bound = false) {
  thread.count_down();  // a call that is timed stays so
  if (!plan.direct || thread.is_timed()) [[unlikely]]
    return run_plan({thread, site, entry, plan, cells, flags, bound});
  char* const error = thread.message();
  yard_call_t call;
  start_call(call, error, flags, site.core->host, plan.self);
  const int32_t code = call_kernel(call, [&] { return plan.run(&call, cells.at, cells.count); });
  if (code == YARD_OK) [[likely]] {
    count(counter(thread, plan.counter));
    return nullptr;
  }
  return after_failure({thread, site, entry, plan, cells, flags, bound}, code, error);
}

// Fills in a route except for entry, version and flags.
void fill_route(Route& route, const Core& core, const exec::Plan& plan) noexcept;

// Counts a call that found no kernel under the rules in rollout.
void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why);

}  // namespace yard::dispatch
