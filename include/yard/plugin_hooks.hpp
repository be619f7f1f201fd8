// SPDX-License-Identifier: Apache-2.0
// Hooks and dispatched functions of plugins, for plugin.hpp: functions that replace functions of the program.
//
//   int64_t add(int64_t a, int64_t b) { return a + b; }
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
//
//   Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
//       .add(hook<add>("add").backend("acme"))
//       .add(hook<twice>("scale").samples<scale_samples, identity>().backend("acme").priority(10))
//       .add(function<fast>("kda", "chunk", "acme").verify<fits>(kReasons, host).samples<some_calls>())
//
// The manifest lists the hooks (HOOKS of yard_add_plugin) and the groups of functions. Signatures are compared at load
// with those of the program, with the layouts of C++ types (yard/detail/signature.h).
#pragma once

#include <yard/provide.h>
#include <yard/plugin.hpp>

namespace yard::plugin {

namespace detail {

// A function without state: `self` is not used.
template <auto F, class T>
struct HookOf;
template <auto F, class R, class... A>
struct HookOf<F, R (*)(A...)> {
  using Signature = R(A...);
  static constexpr bool kTakesNext = false;
  static R entry(void*, A... a) { return F(std::forward<A>(a)...); }
};
template <auto F, class R, class... A>
struct HookOf<F, R (*)(Next<R(A...)>, A...)> {
  using Signature = R(A...);
  static constexpr bool kTakesNext = true;
  static R entry(void* given, A... a) {
    return F(Next<R(A...)>(static_cast<const yard_hook_next_t*>(given)), std::forward<A>(a)...);
  }
};
template <auto F, class R, class... A>
struct HookOf<F, R (*)(A...) noexcept> : HookOf<F, R (*)(A...)> {};

// The reasons of a verifier are numbered by their place in this list. A text that is not in it cannot be shown: its
// number is one past the end, for which the host has a message, and checks report the verifier as broken.
struct ReasonTexts {
  std::span<const char* const> list;
  const yard_host_t* host_ = nullptr;
  const yard_host_t* host() const noexcept { return host_; }
  int32_t number(const char* text) const noexcept {
    size_t i = 0;
    while (i < list.size() && list[i] != text && std::string_view(list[i]) != text) ++i;
    return YARD_REASON_OWN + static_cast<int32_t>(i);
  }
};

// A verifier returns a Verdict (yard::detail::VerifierOf), or takes the function's arguments and then a yard_verdict_t*
// to fill in. The host reports exceptions.
template <auto V, class S>
struct VerifierOf;
template <auto V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using T = decltype(V);
  using Typed = yard::detail::VerifierOf<T, R(A...)>;
  static constexpr bool kFills =
      yard::detail::kHasParameters<yard::detail::SignatureOf<T>, A..., yard_verdict_t*> &&
      std::is_invocable_r_v<int32_t, T, yard::detail::VerifyArg<A>..., yard_verdict_t*>;
  static_assert(
      Typed::kGivesVerdict || kFills,
      "a verifier is yard::Verdict(A...) or int32_t(A..., yard_verdict_t*), where A... are "
      "its function's, perhaps after a const yard::FunctionQuery&");
  static inline ReasonTexts texts;

  static int32_t entry(void*, yard::detail::VerifyArg<A>... a, yard_verdict_t* verdict) {
    if constexpr (Typed::kGivesVerdict)
      return Typed::ask(V, texts, a..., verdict);
    else
      return V(a..., verdict);
  }
};

// Sample calls with their types erased.
template <auto M, class S>
struct SamplesOf;
template <auto M, class R, class... A>
struct SamplesOf<M, R(A...)> {
  using Calls = SampleCalls<R(A...)>;
  using Verify = int32_t (*)(void*, yard::detail::VerifyArg<A>..., yard_verdict_t*);
  static_assert(std::is_invocable_v<decltype(M), const Calls&>,
                "sample calls are made by a void(const yard::SampleCalls<S>&), where S is the "
                "function's signature");

  static int32_t ask(void* args, void (*verify)(void), void* of, yard_verdict_t* verdict) {
    const auto f = reinterpret_cast<Verify>(verify);
    return std::apply([&](const auto&... a) { return f(of, a..., verdict); },
                      *static_cast<const typename Calls::Arguments*>(args));
  }
  static void take(void* host, const typename Calls::Arguments& args) {
    const auto& to = *static_cast<const yard_samples_t*>(host);
    const yard_sample_t sample{sizeof sample, 0, const_cast<void*>(static_cast<const void*>(&args)),
                               &ask};
    to.take(to.self, &sample);
  }
  static void entry(void*, const void* to) { M(Calls(&take, const_cast<void*>(to))); }
};

}  // namespace detail

// Sample calls of a hook, which `yard verify` runs: `call(expected, arguments...)`, where `expected` is the result, or a
// predicate of it; of a hook that returns nothing, a predicate without parameters.
template <class Signature>
class HookSamples;
template <class R, class... A>
class HookSamples<R(A...)> {
 public:
  using Run = R (*)(void*, A...);
  template <class T>
  using Passed = std::conditional_t<std::is_reference_v<T>, T, const T&>;

  // The hook may be run more than once: arguments are passed by value or as they are, and not moved.
  template <class E>
  void operator()(const E& expected, A... args) const {
    const auto holds = [&](Run run, void* of) -> bool {
      if constexpr (std::is_void_v<R>) {
        run(of, static_cast<Passed<A>>(args)...);
        return expected();
      } else if constexpr (std::is_invocable_r_v<bool, const E&, R>) {
        return expected(run(of, static_cast<Passed<A>>(args)...));
      } else {
        return run(of, static_cast<Passed<A>>(args)...) == expected;
      }
    };
    auto check = [&](void (*function)(void), void* of) {
      return holds(reinterpret_cast<Run>(function), next_ != nullptr ? next_ : of);
    };
    using Check = decltype(check);
    const yard_sample_t sample{
        sizeof sample, 0, &check,
        [](void* c, void (*function)(void), void* of, yard_verdict_t*) -> int32_t {
          return (*static_cast<Check*>(c))(function, of) ? YARD_OK : YARD_FAULT;
        }};
    to_.take(to_.self, &sample);
  }

  // For the library itself.
  HookSamples(const yard_samples_t& to, void* next) noexcept : to_(to), next_(next) {}

 private:
  const yard_samples_t& to_;
  void* next_;
};

namespace detail {
template <auto F>
class HookAround : public Hook {
 public:
  using H = HookOf<F, decltype(F)>;
  explicit HookAround(const char* name) noexcept : Hook(name) {
    d.signature = signature_of<typename H::Signature>();
    d.function = reinterpret_cast<void (*)(void)>(&H::entry);
    d.flags = H::kTakesNext ? YARD_HOOK_NEXT : 0;
  }

  // M makes sample calls: void(const HookSamples<S>&). N serves as the next one for a hook that takes yard::Next.
  template <auto M, auto N = nullptr>
  HookAround& samples() noexcept {
    using Calls = HookSamples<typename H::Signature>;
    static_assert(std::is_invocable_v<decltype(M), const Calls&>,
                  "sample calls are made by a void(const HookSamples<S>&), where S is the "
                  "hook's signature");
    d.samples = [](void*, const void* to) {
      yard_hook_next_t next{};
      next.size = sizeof next;
      if constexpr (H::kTakesNext) {
        using Default = HookOf<N, decltype(N)>;
        static_assert(std::is_same_v<typename Default::Signature, typename H::Signature>,
                      "samples<M, N>(): N, which serves as the next one, has the hook's signature");
        next.function = reinterpret_cast<void (*)(void)>(&Default::entry);
      }
      M(Calls(*static_cast<const yard_samples_t*>(to), H::kTakesNext ? &next : nullptr));
    };
    return *this;
  }
};
}  // namespace detail

// A hook around the function F.
template <auto F>
detail::HookAround<F> hook(const char* name) noexcept {
  return detail::HookAround<F>(name);
}

// An implementation of a dispatched function of signature S.
template <class S>
class Function : public Hook {
 public:
  explicit Function(const char* name) noexcept : Hook(name) {}
  // `texts` lists the texts of all its reasons, and must outlive the plugin's use; `host` answers its FunctionQuery.
  template <auto V>
  Function& verify(std::span<const char* const> texts = {},
                   const yard_host_t* host = nullptr) noexcept {
    using Verifier = detail::VerifierOf<V, S>;
    Verifier::texts = {texts, host};
    if (!texts.empty()) reasons(texts);
    d.verify = reinterpret_cast<void (*)(void)>(&Verifier::entry);
    return *this;
  }
  // M makes sample calls, by which the verifier is checked: see yard/provide.h.
  template <auto M>
  Function& samples() noexcept {
    d.samples = &detail::SamplesOf<M, S>::entry;
    return *this;
  }
};

template <auto F>
Function<typename detail::HookOf<F, decltype(F)>::Signature> function(const char* group,
                                                                      const char* name,
                                                                      const char* backend) {
  using H = detail::HookOf<F, decltype(F)>;
  static_assert(!H::kTakesNext, "an implementation of a dispatched function takes no yard::Next");
  Function<typename H::Signature> f(name);
  f.d.group = group, f.d.backend = backend;
  f.d.signature = signature_of<typename H::Signature>();
  f.d.function = reinterpret_cast<void (*)(void)>(&H::entry);
  return f;
}

}  // namespace yard::plugin
