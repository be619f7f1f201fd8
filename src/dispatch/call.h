// SPDX-License-Identifier: Apache-2.0
// Entry points of calls: from C, by name, with options.
#pragma once

#include <yard/call_spec.h>
#include <yard/detail/call.h>
#include <yard/options.h>
#include <yard/plugin.h>

#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dispatch/core.h"
#include "dispatch/memo.h"
#include "dispatch/scope.h"
#include "op/bind.h"

namespace yard::dispatch {

// One call with arguments that may be anything, without options; null when it succeeded. At
// most as many of them are read as the op has. Any thread.
Status::Rep* call_packed(Site* site, const yard_value_t* args, uint32_t count);
// One call of any kind. `options` may be null.
Status call_slow(Site& site, const yard_value_t* args, uint32_t count, const Options* options);
// The same by the rules in rollout.
Status call_in_rollout(Site& site, const yard_value_t* args, uint32_t count, const Options* options,
                       std::shared_ptr<const policy::Rollout> rollout);

// One call by name, without options; null when it succeeded. The thread remembers how the arguments bind to the op's parameters.
Status::Rep* call_named(Core& core, std::string_view op, std::span<const Arg> args);
// An op's site, and in `to` the arguments in the order of its schema.
Result<Site*> bind_named(Core& core, std::string_view op, std::span<const Arg> args,
                         op::Arguments& to);

uint32_t call_flags(const Options& o) noexcept;
// Labels of the call over those of the scope.
op::Labels call_labels(const Options* o, const ScopeState* scope);
// The call as this thread would make it now, in its scope.
op::Call scoped_call(const op::Program& program, const yard_value_t* args, const Options& o);

// Arguments with the facts of every tensor computed, whatever the caller's tensors hold, so that the rest may rely on
// them. Copies tensors, not data; allocates only for long lists. The caller's tensors are not written to.
class WithFacts {
 public:
  // `views`: tensors are those of TensorViews, as in all calls of typed sites.
  WithFacts(const yard_value_t* args, uint32_t count, bool views = false);
  WithFacts(const WithFacts&) = delete;
  WithFacts& operator=(const WithFacts&) = delete;
  const yard_value_t* args() const noexcept { return args_; }

 private:
  static constexpr uint32_t kRoom = 2 * YARD_MAX_ARGS;
  const yard_tensor_t* add(const yard_tensor_t* t, bool view);
  void add_list(yard_value_t& v);
  yard_tensor_t& more_room();

  const yard_value_t* args_;
  uint32_t used_ = 0, listed_ = 0;
  yard_value_t values_[YARD_MAX_ARGS];
  yard_tensor_t tensors_[kRoom];
  const yard_tensor_t* items_[kRoom];
  struct More {
    std::deque<yard_tensor_t> tensors;
    std::deque<std::vector<const yard_tensor_t*>> lists;
  };
  std::unique_ptr<More> more_;  // beyond that
};

// ---- The memo hit of packed calls, as yard/detail/call.h has that of typed ones ----

struct PackedKept : Kept {
  const yard_value_t* args;
};
// After a kernel that failed or was given scratch. Inside the guard.
Status::Rep* after_kernel(Kept& kept, const yard_value_t* args, const HazardSlot& entry,
                          ThreadHead::Value& calls, int32_t code);
// Calls whose memo is not the expected one. Views: `args` are cells of Values (yard/call_spec.h), and are written to.
Status::Rep* call_packed_other_way(Site* site, const yard_value_t* args, uint32_t count);
Status::Rep* call_views_other_way(Site* site, yard_value_t* args, uint32_t count);

// Runs a memo's kernel; `failed` is null on success. False if the memo is stale. kUnfenced: the thread is_unfenced().
template <bool kUnfenced>
[[gnu::always_inline]] inline bool run_packed(Site* site, ThreadHead& thread, const CallMemo& m,
                                              const yard_value_t* args, uint32_t count,
                                              Status::Rep*& failed) {
  char* const error = thread.next_message();
  BasicGuard<kUnfenced> guard(thread);
  guard.announce(m.route.entry);
  if (!m.route.is_current()) [[unlikely]]
    return false;
  const auto run = reinterpret_cast<decltype(exec::Plan::run)>(m.route.run);
  if (run == nullptr || thread.count_down()) [[unlikely]] {
    failed = run_route(site, m.route, args);
    return true;
  }
  PackedKept kept;
  store_apart(kept.site, site);
  store_apart(kept.args, args);
  store_apart(kept.plan, m.route.plan);
  start_call(kept.call, error, m.route.flags, m.route.host, m.route.self);
  asm volatile("" : "+m"(kept));
  ThreadHead::Value& calls = *m.calls;
  const int32_t code = enter_kernel(
      kept, [&]() __attribute__((always_inline)) { return run(&kept.call, args, count); });
  if (code == YARD_OK && kept.call.host_data == nullptr) [[likely]] {
    detail::count(calls);
    failed = nullptr;
  } else {
    failed = after_kernel(kept, kept.args, guard.slot(), calls, code);
  }
  return true;
}

// The memo hit: runs the kernel of a packed call whose first arguments are tensors of kind T, if its form is the expected
// one. Calls nothing before the kernel, so that few registers have to be saved.
template <class T, uint32_t kTensors>
[[gnu::always_inline]] inline bool run_if_expected(Site* site, const yard_value_t* args,
                                                   uint32_t count, Status::Rep*& failed) {
  ThreadHead* const thread = t_thread;
  if (thread == nullptr || !thread->is_unfenced()) [[unlikely]]
    return false;
  const CallMemo& m = expected(*thread->memos, site->id, T::kKind == FormKind::kViews);
  return is_of<T, kTensors>(m, site->id | T::kSite, thread->scope, args, count) &&
         run_packed<true>(site, *thread, m, args, count, failed);
}
// The same for an op whose first parameters are up to four tensors.
template <class T>
[[gnu::always_inline]] inline bool run_if_expected(Site* site, const yard_value_t* args,
                                                   uint32_t count, Status::Rep*& failed) {
  switch (site->leading.load(std::memory_order_relaxed)) {
    case 1: return run_if_expected<T, 1>(site, args, count, failed);
    case 2: return run_if_expected<T, 2>(site, args, count, failed);
    case 3: return run_if_expected<T, 3>(site, args, count, failed);
    case 4: return run_if_expected<T, 4>(site, args, count, failed);
    default: return false;
  }
}

}  // namespace yard::dispatch
