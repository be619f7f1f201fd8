// SPDX-License-Identifier: Apache-2.0
// Handles for calls that are made again and again on tensors of the same form.
//
//   auto fast = yard::bind(rms_norm, out, x, weight).value();    // follows changes of policy and registry
//   fast(1e-6f).or_throw();                                      // on the tensors it was bound to
//   fast(out2, x2, weight, 1e-6f).or_throw();                    // on others of the same form
//   auto fixed = yard::freeze(rms_norm, out, x, weight).value(); // one kernel, pinned, nothing checked
//
// Dtypes, shapes, strides and alignment are fixed; data pointers and scalars may vary. Passing tensors of
// another form is undefined (debug builds check it). Handles may be copied and called from any thread.
#pragma once

#include <yard/op.h>
#include <yard/options.h>
#include <yard/value.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace yard {
namespace detail {

// A handle's route, found in advance. A call holds it by a guard, which also keeps what it points to, provided
// that it was still current afterwards.
struct BoundState {
  std::atomic<const Route*> route{nullptr};
  virtual ~BoundState() = default;  // the library derives from it

 protected:
  BoundState() = default;
};
YARD_API Result<std::shared_ptr<BoundState>> make_bound(Site* site, const yard_value_t* args);
// The packed way; finds a new route when things have changed.
YARD_API Status::Rep* call_bound(BoundState* state, const yard_value_t* args);
// After the route's kernel failed; inside the guard.
YARD_API Status::Rep* bound_failed(BoundState* state, const Route* route, const yard_value_t* args,
                                   int32_t code, const char* message);

// The kernel a frozen handle holds. `typed` is null where it cannot be called in registers.
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
// The packed way, for kernels without a typed entry or with workspace.
YARD_API Status::Rep* call_frozen(const FrozenKernel& kernel, const yard_value_t* args, uint32_t n);
YARD_API Status::Rep* frozen_failed(const FrozenKernel& kernel, int32_t code, const char* message);

template <class... P>
inline constexpr size_t kTensors = (size_t{0} + ... + (Param<P>::is_tensor ? 1 : 0));

// Fills cells from tensors (kept or given) and scalars, each in order.
template <class... P>
struct Layout {
  static constexpr size_t kCount = sizeof...(P);
  static constexpr bool kIsTensor[kCount + 1] = {Param<P>::is_tensor...};

  static void put_tensors(yard_value_t* cells,
                          const std::array<std::optional<TensorView>, kCount>& kept) {
    for (size_t i = 0; i < kCount; ++i)
      if (kIsTensor[i]) cells[i] = kept[i] ? Value(*kept[i]).c() : yard_value_t{};
  }
  template <class... S>
  static void put_scalars(yard_value_t* cells, const S&... s) {
    [[maybe_unused]] size_t at = 0;
    [[maybe_unused]] const auto put = [&](const yard_value_t& v) {
      while (kIsTensor[at]) ++at;
      cells[at] = v;
      // A double given for a float parameter, an int for an int one: as a plain call converts them.
      ++at;
    };
    (put(s), ...);
  }
};

template <class T>
struct ScalarsOf;
template <>
struct ScalarsOf<std::tuple<>> {
  using type = std::tuple<>;
};
template <class P, class... Rest>
struct ScalarsOf<std::tuple<P, Rest...>> {
  using rest = typename ScalarsOf<std::tuple<Rest...>>::type;
  using type = std::conditional_t<Param<P>::is_tensor, rest,
                                  decltype(std::tuple_cat(std::declval<std::tuple<P>>(),
                                                          std::declval<rest>()))>;
};

}  // namespace detail

template <class Signature, class Scalars>
class BoundOp;
template <class... P, class... S>
class BoundOp<void(P...), std::tuple<S...>> {
 public:
  using Kept = std::array<std::optional<TensorView>, sizeof...(P)>;
  BoundOp(std::shared_ptr<detail::BoundState> state, Kept kept)
      : state_(std::move(state)), kept_(std::move(kept)) {}

  // On the tensors it was bound to.
  [[nodiscard]] Status operator()(S... s) const {
    yard_value_t args[detail::kCells<P...>] = {};
    detail::Layout<P...>::put_tensors(args, kept_);
    detail::Layout<P...>::put_scalars(args, detail::Param<S>::pack(s)...);
    return Status::adopt(detail::call_bound(state_.get(), args));
  }
  // On others of the same form.
  [[nodiscard, gnu::always_inline]] inline Status operator()(P... p) const
      requires(sizeof...(P) != sizeof...(S)) {
    if constexpr (detail::kInRegisters<P...>) {
      if (detail::ThreadHead* thread = detail::t_thread;
          thread != nullptr && thread->scope == 0 &&
          thread->depth < detail::ThreadHead::kInlineSlots) [[likely]] {
        char* const error = thread->next_message();
        detail::Guard guard(*thread, detail::Guard::Inline());
        const detail::Route* const route = guard.protect(state_->route);
        if (route->typed != nullptr && route->is_current()) [[likely]] {
          yard_call_t call;
          detail::start_call(call, error, route->flags, route->host, route->self);
          const int32_t code =
              detail::enter_typed(route->typed, call, detail::Param<P>::wire(p)...);
          if (call.host_data != nullptr) [[unlikely]]
            detail::free_call_scratch(&call);
          if (code == YARD_OK) [[likely]] {
            detail::count(*thread, route->counter);
            return {};
          }
          const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
          return Status::adopt(detail::bound_failed(state_.get(), route, args, code, error));
        }
      }
    }
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return Status::adopt(detail::call_bound(state_.get(), args));
  }

 private:
  std::shared_ptr<detail::BoundState> state_;
  Kept kept_;
};

template <class Signature, class Scalars>
class FrozenOp;
template <class... P, class... S>
class FrozenOp<void(P...), std::tuple<S...>> {
 public:
  using Kept = std::array<std::optional<TensorView>, sizeof...(P)>;
  FrozenOp(detail::FrozenKernel kernel, Kept kept)
      : kernel_(std::move(kernel)), kept_(std::move(kept)) {}

  // On the tensors it was frozen with.
  [[nodiscard]] Status operator()(S... s) const {
    yard_value_t args[detail::kCells<P...>] = {};
    detail::Layout<P...>::put_tensors(args, kept_);
    detail::Layout<P...>::put_scalars(args, detail::Param<S>::pack(s)...);
    return Status::adopt(detail::call_frozen(kernel_, args, sizeof...(P)));
  }
  // On others of the same form: the fastest call there is.
  [[nodiscard, gnu::always_inline]] inline Status operator()(P... p) const
      requires(sizeof...(P) != sizeof...(S)) {
    if constexpr (detail::kInRegisters<P...>) {
      if (kernel_.typed != nullptr) [[likely]] {
        char error[detail::ThreadHead::kErrorBytes];
        yard_call_t call;
        detail::start_call(call, error, kernel_.flags, kernel_.host, kernel_.self);
        const int32_t code = detail::enter_typed(kernel_.typed, call, detail::Param<P>::wire(p)...);
        if (call.host_data != nullptr) [[unlikely]]
          detail::free_call_scratch(&call);
        if (code == YARD_OK) [[likely]]
          return {};
        return Status::adopt(detail::frozen_failed(kernel_, code, error));
      }
    }
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return Status::adopt(detail::call_frozen(kernel_, args, sizeof...(P)));
  }
  // The kernel it holds.
  const std::string& kernel() const noexcept { return kernel_.id; }

 private:
  detail::FrozenKernel kernel_;
  Kept kept_;
};

template <class... P>
using Bound = BoundOp<void(P...), typename detail::ScalarsOf<std::tuple<P...>>::type>;
template <class... P>
using Frozen = FrozenOp<void(P...), typename detail::ScalarsOf<std::tuple<P...>>::type>;

namespace detail {

// Tensors in order, std::nullopt for absent optionals.
template <class... P>
std::array<std::optional<TensorView>, sizeof...(P)> keep(
    std::initializer_list<std::optional<TensorView>> tensors) {
  std::array<std::optional<TensorView>, sizeof...(P)> kept;
  constexpr bool is_tensor[] = {Param<P>::is_tensor..., false};
  size_t at = 0;
  for (const auto& t : tensors) {
    while (!is_tensor[at]) ++at;
    kept[at++] = t;
  }
  return kept;
}

}  // namespace detail

namespace detail {

template <class... P, class O, class... T>
Result<Bound<P...>> bind_op(const O& op, const T&... tensors) {
  Status why;
  Site* site = op.attached(&why);
  if (site == nullptr) return why;
  auto kept = keep<P...>({std::optional<TensorView>(tensors)...});
  yard_value_t args[kCells<P...>] = {};
  Layout<P...>::put_tensors(args, kept);
  auto state = make_bound(site, args);
  if (!state.ok()) return std::move(state).status();
  return Bound<P...>(*std::move(state), std::move(kept));
}

template <class... P, class O, class... T>
Result<Frozen<P...>> freeze_op(const O& op, const T&... tensors) {
  Status why;
  Site* site = op.attached(&why);
  if (site == nullptr) return why;
  auto kept = keep<P...>({std::optional<TensorView>(tensors)...});
  yard_value_t args[kCells<P...>] = {};
  Layout<P...>::put_tensors(args, kept);
  auto kernel = make_frozen(site, args);
  if (!kernel.ok()) return std::move(kernel).status();
  return Frozen<P...>(*std::move(kernel), std::move(kept));
}

}  // namespace detail

// A handle that looks nothing up as long as nothing changes. Takes the op's tensors, in order.
template <class... P, class... T>
requires(sizeof...(T) == detail::kTensors<P...>) Result<Bound<P...>> bind(const Op<void(P...)>& op,
                                                                          const T&... tensors) {
  return detail::bind_op<P...>(op, tensors...);
}
// On another runtime: `bind(rms_norm.on(runtime), out, x, weight)`.
template <class... P, class... T>
requires(sizeof...(T) ==
         detail::kTensors<P...>) Result<Bound<P...>> bind(const OpOn<void(P...)>& op,
                                                          const T&... tensors) {
  return detail::bind_op<P...>(op, tensors...);
}

// One kernel, chosen now and pinned: later changes do not reach it, and its plugin stays loaded.
template <class... P, class... T>
requires(sizeof...(T) ==
         detail::kTensors<P...>) Result<Frozen<P...>> freeze(const Op<void(P...)>& op,
                                                             const T&... tensors) {
  return detail::freeze_op<P...>(op, tensors...);
}
template <class... P, class... T>
requires(sizeof...(T) ==
         detail::kTensors<P...>) Result<Frozen<P...>> freeze(const OpOn<void(P...)>& op,
                                                             const T&... tensors) {
  return detail::freeze_op<P...>(op, tensors...);
}

}  // namespace yard

// ---- Instance ----
// Instances: an op with options and weights of its own, for kernels that have state.
//
//   auto attention = yard::Instance::make("sliding_attention", {{"window", 128}}).value();
//   attention.load({{"sink", sink}}).or_throw();            // named tensors, borrowed
//   attention.call({out, q, k, v}).or_throw();
//
// The kernel that serves a call gets its state the first time: created from the options, loaded with the
// weights, prepared for the shape; it is kept for later calls and ended exactly once. Calls may come from
// any thread; a kernel must not change its state while it runs. Plain calls share one instance without
// options or weights.

namespace yard {

class Runtime;
namespace detail {
class Core;
}
namespace exec {
class States;
}

class Instance {
 public:
  // Options by name. An error if no kernel of the op would take them; a kernel that would not is passed
  // over. Copies texts. The runtime must outlive the instance.
  YARD_API static Result<Instance> make(Runtime& runtime, std::string_view op,
                                        std::initializer_list<Arg> options = {});
  // On Runtime::shared().
  YARD_API static Result<Instance> make(std::string_view op,
                                        std::initializer_list<Arg> options = {});

  // Tensors by name; their data must stay as long as the instance. Replaces what was loaded before.
  YARD_API Status load(std::initializer_list<Arg> weights);

  YARD_API Status call(std::initializer_list<Arg> args, Options options = {}) const;

  const std::string& op() const noexcept { return op_; }
  // How many states it holds now.
  YARD_API size_t states() const;

 private:
  friend class detail::Core;
  Instance() = default;
  Runtime* runtime_ = nullptr;
  std::string op_;
  std::shared_ptr<exec::States> states_;
};

}  // namespace yard
