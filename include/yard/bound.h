// SPDX-License-Identifier: Apache-2.0
// A handle finds the kernel of repeated calls in advance (docs/guides/calling_ops.md).
//
//   auto fast = yard::bind(rms_norm, out, x, weight).value();     // follows changes
//   fast(1e-6f).or_throw();                                       // on the tensors it was bound to
//   fast(out2, x2, weight, 1e-6f).or_throw();                     // on others of the same form
//   auto fixed = yard::freeze(rms_norm, out, x, weight).value();  // one kernel for good
//
// A handle is made for one form: dtypes, shapes, strides and alignment. Data pointers and scalars
// may vary. Other forms are undefined behaviour, which debug builds check. Any thread may call.
#pragma once

#include <yard/detail/bound.h>
#include <yard/options.h>

namespace yard {

template <class Kernel, class Signature, class Scalars>
class Handle;
template <class Kernel, class... P, class... S>
class Handle<Kernel, void(P...), std::tuple<S...>> {
 public:
  Handle(Kernel kernel, detail::KeptTensors<P...> kept)
      : kernel_(std::move(kernel)), kept_(std::move(kept)) {}

  [[nodiscard]] Status operator()(S... s) const {
    const auto args = kept_.with(detail::Param<S>::pack(s)...);
    return Status::adopt(kernel_.call(args.data(), sizeof...(P)));
  }
  [[nodiscard, gnu::always_inline]] YARD_MODE_TAG inline Status operator()(P... p) const
      requires(sizeof...(P) != sizeof...(S)) {
    if constexpr (detail::kInRegisters<P...>) {
      Status::Rep* failed;
      if (kernel_.call_typed(failed, p...)) [[likely]]
        return Status::adopt(failed);
    }
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return Status::adopt(kernel_.call(args, sizeof...(P)));
  }
  template <class... A>
  requires detail::HasForeignTensor<sizeof...(P), A...>
  [[nodiscard]] YARD_MODE_TAG Status operator()(const A&... a) const {
    return (*this)(detail::as_argument(a)...);
  }
  // Returns the current kernel's id. Empty if there is none or if scalars decide at each call.
  std::string kernel() const { return kernel_.name(); }

 private:
  Kernel kernel_;
  detail::KeptTensors<P...> kept_;
};

template <class... P>
using Bound = Handle<detail::BoundKernel, void(P...), detail::ScalarsOf<P...>>;
template <class... P>
using Frozen = Handle<detail::FrozenKernel, void(P...), detail::ScalarsOf<P...>>;

namespace detail {

template <class H, class... P, class O, class M, class... T>
YARD_MODE_TAG Result<H> make_handle(const O& op, const M& make, const T&... tensors) {
  static_assert(sizeof...(T) == TypedForm<P...>::kTensors, "a handle takes all tensors of its op");
  Status why;
  Site* site = op.attached(&why);
  if (site == nullptr) return why;
  KeptTensors<P...> kept({std::optional<TensorView>(as_argument(tensors))...});
  auto made = make(site, kept.with().data());
  if (!made.ok()) return std::move(made).status();
  return H({*std::move(made)}, std::move(kept));
}

}  // namespace detail

// Takes the op's tensors in order (absent ones as std::nullopt). `op` may be an OpOn.
template <template <class> class O, class... P, class... T>
YARD_MODE_TAG Result<Bound<P...>> bind(const O<void(P...)>& op, const T&... tensors) {
  return detail::make_handle<Bound<P...>, P...>(op, detail::make_bound, tensors...);
}
// Pins the kernel that is selected now, and its plugin. Later changes do not affect the handle.
template <template <class> class O, class... P, class... T>
YARD_MODE_TAG Result<Frozen<P...>> freeze(const O<void(P...)>& op, const T&... tensors) {
  return detail::make_handle<Frozen<P...>, P...>(op, detail::make_frozen, tensors...);
}

namespace exec {
class States;
}

// An op with its own options and weights, for kernels that have state.
//
//   auto attention = yard::Instance::make("sliding_attention", {{"window", 128}}).value();
//   attention.load({{"sink", sink}}).or_throw();
//   attention.call({out, q, k, v}).or_throw();
//
// Kernels may keep a prepared copy of a weight that is named like a parameter. That argument must
// not change until the next load().
class YARD_API Instance {
 public:
  // Fails if no kernel of the op accepts the options. The runtime must outlive the instance.
  static Result<Instance> make(Runtime& runtime, std::string_view op,
                               std::initializer_list<Arg> options = {});
  static Result<Instance> make(Runtime& runtime, std::string_view op, std::span<const Arg> options);
  static Result<Instance> make(std::string_view op, std::initializer_list<Arg> options = {});

  // Replaces all weights and borrows the tensors. Fails if no kernel declares all of the names;
  // kernels that lack a name decline calls.
  Status load(std::initializer_list<Arg> weights);
  Status load(std::span<const Arg> weights);

  Status call(std::initializer_list<Arg> args, Options options = {}) const;

  const std::string& op() const noexcept { return op_; }
  size_t states() const;         // how many exist now
  uint64_t state_bytes() const;  // the sum that their kernels report

 private:
  friend class detail::Core;
  Instance() = default;
  Runtime* runtime_ = nullptr;
  std::string op_;
  std::shared_ptr<exec::States> states_;
};

}  // namespace yard
