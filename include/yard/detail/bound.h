// SPDX-License-Identifier: Apache-2.0
// The parts of bound and frozen handles (yard/bound.h). Not for direct use.
#pragma once

#include <yard/call_spec.h>
#include <yard/op.h>

#include <tuple>

namespace yard::detail {

// The library derives from this class. The route was found in advance; a guard holds it in calls.
struct BoundState {
  std::atomic<const Route*> route{nullptr};
  Site* const site;

 protected:
  explicit BoundState(Site* s) noexcept : site(s) {}
  ~BoundState() = default;
};
YARD_API Result<std::shared_ptr<BoundState>> make_bound(Site* site, const yard_value_t* args);
// Makes a packed call, and finds a new route after a change.
YARD_API Status::Rep* call_bound(BoundState* state, const yard_value_t* args);
// Ends a call whose kernel failed or was given scratch. The caller holds the guard.
YARD_API Status::Rep* after_bound(BoundState* state, const Route& route, yard_call_t& call,
                                  const yard_value_t* args, int32_t code);
// Returns the id of the kernel that this thread would call, or "" if none or if scalars decide.
YARD_API std::string bound_kernel(BoundState* state);

struct BoundKernel {
  std::shared_ptr<BoundState> state;

  std::string name() const { return bound_kernel(state.get()); }
  Status::Rep* call(const yard_value_t* args, uint32_t) const {
    return call_bound(state.get(), args);
  }
  // Calls in registers, with a null `failed` on success. Returns false if call() must be used.
  template <class... P>
  [[gnu::always_inline]] bool call_typed(Status::Rep*& failed, const P&... p) const {
    ThreadHead* const thread = t_thread;
    if (thread == nullptr || !thread->is_unfenced()) [[unlikely]]
      return false;
    if (thread->scope != 0) [[unlikely]] {  // the handle is bound under the policy of the process
      failed = call_typed_op<P...>(state->site, p...);
      return true;
    }
    char* const error = thread->next_message();
    BasicGuard<true> guard(*thread);
    const Route* const route_now = guard.protect(state->route);
    if (route_now->typed == nullptr || !route_now->is_current() || thread->count_down())
        [[unlikely]]
      return false;
    yard_call_t call;
    start_call(call, error, route_now->flags, route_now->host, route_now->self);
    const int32_t code = enter_typed(route_now->typed, call, Param<P>::wire(p)...);
    if (code == YARD_OK && call.host_data == nullptr) [[likely]] {
      count(*thread, route_now->counter);
      failed = nullptr;
    } else {
      const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
      failed = after_bound(state.get(), *route_now, call, args, code);
    }
    return true;
  }
};

// Calls below this stack address have too little stack. Large until the thread has asked.
extern YARD_API thread_local constinit uintptr_t t_stack_limit
    __attribute__((tls_model("initial-exec")));

struct FrozenKernel;
YARD_API Result<FrozenKernel> make_frozen(Site* site, const yard_value_t* args);
// Makes a packed call: without a typed entry, with workspace, or if the stack may be full.
YARD_API Status::Rep* call_frozen(const FrozenKernel& kernel, const yard_value_t* args, uint32_t n);
YARD_API Status::Rep* frozen_failed(const FrozenKernel& kernel, int32_t code, const char* message);

struct FrozenKernel {
  void (*typed)(void) = nullptr;  // null if it cannot be called in registers
  const yard_host_t* host = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;
  std::shared_ptr<void> pin;  // keeps the kernel, its backend and its plugin
  Site* site = nullptr;
  std::string id;

  const std::string& name() const noexcept { return id; }
  Status::Rep* call(const yard_value_t* args, uint32_t n) const {
    return call_frozen(*this, args, n);
  }
  template <class... P>
  [[gnu::always_inline]] bool call_typed(Status::Rep*& failed, const P&... p) const {
    char error[ThreadHead::kErrorBytes];
    if (reinterpret_cast<uintptr_t>(error) < t_stack_limit || typed == nullptr) [[unlikely]]
      return false;
    yard_call_t call;
    start_call(call, error, flags, host, self);
    const int32_t code = enter_typed(typed, call, Param<P>::wire(p)...);
    if (call.host_data != nullptr) [[unlikely]]
      free_call_scratch(&call);
    failed = nullptr;
    if (code != YARD_OK) [[unlikely]]
      failed = frozen_failed(*this, code, error);
    return true;
  }
};

// The tensors that a handle was made with, at the places of their parameters.
template <class... P>
struct KeptTensors {
  static constexpr bool kIsTensor[] = {Param<P>::is_tensor..., false};
  std::optional<TensorView> at[sizeof...(P) + 1];

  explicit KeptTensors(std::initializer_list<std::optional<TensorView>> tensors) {
    size_t i = 0;
    for (const auto& t : tensors) {
      while (!kIsTensor[i]) ++i;
      at[i++] = t;
    }
  }
  // Returns the cells of a call with these scalars, where missing scalars are absent.
  template <class... S>
  std::array<yard_value_t, kCells<P...>> with(const S&... s) const {
    std::array<yard_value_t, kCells<P...>> cells{};
    const yard_value_t scalars[] = {s..., yard_value_t{}};
    for (size_t i = 0, n = 0; i < sizeof...(P); ++i) {
      if (kIsTensor[i])
        cells[i] = at[i] ? Value(*at[i]).c() : yard_value_t{};
      else if (n < sizeof...(S))
        cells[i] = scalars[n++];
    }
    return cells;
  }
};

template <class... P>
using ScalarsOf = decltype(std::tuple_cat(
    std::declval<std::conditional_t<Param<P>::is_tensor, std::tuple<>, std::tuple<P>>>()...));

}  // namespace yard::detail
