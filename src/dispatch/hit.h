// SPDX-License-Identifier: Apache-2.0
// Running the plan of a hit: shared by plain calls and bound handles, and inlined into both.
#pragma once

#include <yard/detail/call.h>
#include <yard/detail/counter.h>

#include "base/reclaimer.h"
#include "dispatch/core.h"
#include "exec/executor.h"

namespace yard::detail {

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
  r.inspector = e.candidates().settings().inspector.get();
  return r;
}

// What follows a first kernel that failed. Inside the guard.
Status::Rep* after_failure(base::ThreadRecord& thread, const Entry& e, const Core& core,
                           const exec::Plan& plan, const yard_value_t* args, uint32_t flags,
                           int32_t code, const char* message);

// A hit whose kernel needs something first, or that somebody watches. Inside the guard.
Status::Rep* run_plan(base::ThreadRecord& thread, const Entry& e, const Core& core,
                      const exec::Plan& plan, const yard_value_t* args, uint32_t flags);

// Fills in all of a route but what keeps it valid: entry, version and flags.
void fill_route(Route& route, const Core& core, const exec::Plan& plan) noexcept;

// The aliasing of a call of a bound handle: other data pointers may overlap otherwise than those it was bound to.
uint32_t bound_flags(const Entry& e, const yard_value_t* args) noexcept;

// Runs the plan of a hit. Inside the guard; inlined into each kind of call. `flags` of a bound handle are those of its
// binding: all that a direct plan needs as long as its kernel goes well. `calls`: this thread's counter of the kernel,
// if it is known.
template <bool kBound = false>
[[gnu::always_inline]] inline Status::Rep* run_hit(base::ThreadRecord& thread, const Entry& e,
                                                   const Core& core, const exec::Plan& plan,
                                                   const yard_value_t* args, uint32_t count,
                                                   uint32_t flags,
                                                   ThreadHead::Value* calls = nullptr) {
  if (!plan.direct.load(std::memory_order_relaxed)) [[unlikely]]
    return run_plan(thread, e, core, plan, args, kBound ? bound_flags(e, args) : flags);
  char* const error = thread.message();
  yard_call_t call;
  start_call(call, error, flags, core.host, plan.self);
  const int32_t code = call_kernel(call, [&] { return plan.run(&call, args, count); });
  if (code == YARD_OK) [[likely]] {
    detail::count(calls != nullptr ? *calls : counter(thread, plan.counter));
    return nullptr;
  }
  return after_failure(thread, e, core, plan, args, kBound ? bound_flags(e, args) : flags, code,
                       error);
}

}  // namespace yard::detail
