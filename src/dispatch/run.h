// SPDX-License-Identifier: Apache-2.0
// Runs the plan of a call: the kernel alone, or the executor and everything that watches a call.
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
  bool bound = false;  // a bound handle's call: `flags` has the aliasing of the bound tensors
  const yard_value_t* args = nullptr;  // the cells with facts, or null if not computed
  const Options* options = nullptr;
  const policy::Rollout* rollout = nullptr;  // the rollout whose rules apply
  bool selected = false;                     // the call had no plan
  int64_t select_ns = 0;
  int64_t started = 0;  // when the plan was found, if there is a record to fill in
};

// Returns an error if the call is nested too deep. Call this before making the guard.
[[gnu::always_inline]] inline Status::Rep* check_depth(base::ThreadRecord& thread,
                                                       const Site& site) {
  if (thread.depth < ThreadHead::kInlineSlots) [[likely]]
    return nullptr;
  return refuse_if_too_deep(thread, site.core->max_call_depth.load(std::memory_order_relaxed),
                            site.name);
}

// Begin the record of a call, and add its plan. Both return the current time.
int64_t begin_record(ResultRecord& record) noexcept;
int64_t note_plan(ResultRecord& record, const Entry& entry, const exec::Plan& plan, int64_t start);
// `args` must have facts.
exec::Request request(const PlannedCall& call, const yard_value_t* args);
// Runs a plan. The caller has called count_down().
Status run(const PlannedCall& call);
// Calls run() and turns std::bad_alloc into an error. Returns null on success.
Status::Rep* run_plan(const PlannedCall& call);
// Reports that the kernel of a direct plan has failed. Returns null if another one served the call.
Status::Rep* after_failure(const PlannedCall& call, int32_t code, const char* message);

// `calls` is this thread's counter of the plan's class.
[[gnu::always_inline]] inline Status::Rep* run_hit(base::ThreadRecord& thread, Site& site,
                                                   const Entry& entry, const exec::Plan& plan,
                                                   ThreadHead::Value& calls, const Cells& cells,
                                                   uint32_t flags, bool bound = false) {
  thread.count_down();  // a timed call stays timed
  if (!plan.direct || thread.is_timed()) [[unlikely]]
    return run_plan({thread, site, entry, plan, cells, flags, bound});
  char* const error = thread.message();
  yard_call_t call;
  start_call(call, error, flags, site.core->host, plan.self);
  const int32_t code = call_kernel(call, [&] { return plan.run(&call, cells.at, cells.count); });
  if (code == YARD_OK) [[likely]] {
    count(calls);
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
