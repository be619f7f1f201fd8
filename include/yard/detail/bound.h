// SPDX-License-Identifier: Apache-2.0
// What bound and frozen handles (yard/bound.h) consist of. Not for direct use.
#pragma once

#include <yard/call_spec.h>
#include <yard/detail/guard.h>
#include <yard/op.h>
#include <yard/status.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <tuple>

namespace yard::detail {

// A handle's route, found in advance. A call holds it by a guard, which keeps what it points to if it is still current.
struct BoundState {  // the library derives from it
  std::atomic<const Route*> route{nullptr};

 protected:
  BoundState() = default;
  ~BoundState() = default;
};
YARD_API Result<std::shared_ptr<BoundState>> make_bound(Site* site, const yard_value_t* args);
// Calls packed; finds a new route after a change.
YARD_API Status::Rep* call_bound(BoundState* state, const yard_value_t* args);
// After the route's kernel failed or was given scratch. Inside the guard.
YARD_API Status::Rep* after_bound(BoundState* state, const Route& route, yard_call_t& call,
                                  const yard_value_t* args, int32_t code);
YARD_API std::string bound_kernel(BoundState* state);

// A nested call below this address would leave the thread's stack too little room (base/reclaimer.h). The largest number
// until the thread has asked.
extern YARD_API thread_local constinit uintptr_t t_stack_limit
    __attribute__((tls_model("initial-exec")));

// The kernel of a frozen handle. `typed` is null where it cannot be called in registers.
struct FrozenKernel {
  void (*typed)(void) = nullptr;
  const yard_host_t* host = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;
  std::shared_ptr<void> pin;  // keeps the kernel, its backend and its plugin
  Site* site = nullptr;
  std::string id;
};
YARD_API Result<FrozenKernel> make_frozen(Site* site, const yard_value_t* args);
// Calls packed, for kernels without a typed entry or with workspace. An error if the stack is too full for the call.
YARD_API Status::Rep* call_frozen(const FrozenKernel& kernel, const yard_value_t* args, uint32_t n);
YARD_API Status::Rep* frozen_failed(const FrozenKernel& kernel, int32_t code, const char* message);

template <class... P>
inline constexpr size_t kTensors = (size_t{0} + ... + (Param<P>::is_tensor ? 1 : 0));

// The tensors a handle was made with, each at the place of its parameter.
template <class... P>
struct KeptTensors {
  static constexpr bool kIsTensor[] = {Param<P>::is_tensor..., false};
  std::optional<TensorView> at[sizeof...(P) + 1];

  // std::nullopt for absent optionals.
  explicit KeptTensors(std::initializer_list<std::optional<TensorView>> tensors) {
    size_t i = 0;
    for (const auto& t : tensors) {
      while (!kIsTensor[i]) ++i;
      at[i++] = t;
    }
  }
  // The cells of a call with these scalars; those that are left out are absent.
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

// The parameters that are not tensors, as a tuple.
template <class... P>
using ScalarsOf = decltype(std::tuple_cat(
    std::declval<std::conditional_t<Param<P>::is_tensor, std::tuple<>, std::tuple<P>>>()...));

}  // namespace yard::detail
