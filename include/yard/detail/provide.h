// SPDX-License-Identifier: Apache-2.0
// Hooks, implementations of dispatched functions and their verifiers as C++ callables behind a descriptor, for the
// program (yard/hook.h, yard/function.h) and for plugins (yard/plugin_hooks.hpp). Standalone but for plugin.h,
// verdict.h and signature.h. Only Next is for direct use.
//
// A hook is called with the hook's own arguments. One that takes a Next first may call the next in the chain, at last
// the default, instead of or beside doing the work itself:
//
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
#pragma once

#include <yard/detail/signature.h>
#include <yard/plugin.h>
#include <yard/verdict.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace yard {

// The rest of the chain. Valid until the implementation returns; may be called any number of times.
template <class Signature>
class Next;
template <class R, class... A>
class Next<R(A...)> {
 public:
  explicit Next(const yard_hook_next_t* next) noexcept : next_(next) {}
  R operator()(A... a) const {
    return reinterpret_cast<R (*)(void*, A...)>(next_->function)(next_->argument,
                                                                 std::forward<A>(a)...);
  }

 private:
  const yard_hook_next_t* next_;
};

namespace detail {

// The signature of a function, or of an object with one call operator; void for all others (a generic lambda).
template <class F>
struct CallableSignature {
  using Type = void;
};
template <class R, class... A>
struct CallableSignature<R (*)(A...)> {
  using Type = R(A...);
};
template <class R, class... A>
struct CallableSignature<R (*)(A...) noexcept> : CallableSignature<R (*)(A...)> {};
template <class C, class R, class... A>
struct CallableSignature<R (C::*)(A...)> : CallableSignature<R (*)(A...)> {};
template <class C, class R, class... A>
struct CallableSignature<R (C::*)(A...) const> : CallableSignature<R (*)(A...)> {};
template <class C, class R, class... A>
struct CallableSignature<R (C::*)(A...) noexcept> : CallableSignature<R (*)(A...)> {};
template <class C, class R, class... A>
struct CallableSignature<R (C::*)(A...) const noexcept> : CallableSignature<R (*)(A...)> {};
template <class F>
requires requires { &F::operator(); }
struct CallableSignature<F> : CallableSignature<decltype(&F::operator())> {};
template <class F>
using SignatureOf = typename CallableSignature<std::decay_t<F>>::Type;

template <class... T>
struct TypeList {};

// Whether a result converts to the hook's without loss. Types that are no numbers convert as in a return statement.
template <class From, class To>
inline constexpr bool kResultFits = std::is_convertible_v<From, To>;
template <class From, class To>
requires(std::is_arithmetic_v<From>&& std::is_arithmetic_v<To>)  //
    inline constexpr bool kResultFits<From, To> = requires(From f) {
  To{f};
};
// Whether a callable's own signature is that of a hook: the same parameters but for const and &. A callable with
// several signatures must take the arguments as they are.
template <class Own, class S>
inline constexpr bool kSameCall = false;
template <class R, class... A>
inline constexpr bool kSameCall<void, R(A...)> = true;
template <class O, class... P, class R, class... A>
requires(sizeof...(P) == sizeof...(A))  //
    inline constexpr bool kSameCall<O(P...), R(A...)> =
        (std::is_same_v<std::remove_cvref_t<P>, std::remove_cvref_t<A>> && ...) &&
        (std::is_void_v<R> || kResultFits<O, R>);

template <class F, class S>
inline constexpr bool kImplements = false;
template <class F, class R, class... A>
inline constexpr bool kImplements<F, R(A...)> =
    std::is_invocable_r_v<R, const F&, A...>&& kSameCall<SignatureOf<F>, R(A...)>;
template <class F, class S>
inline constexpr bool kImplementsWithNext = false;
template <class F, class R, class... A>
inline constexpr bool kImplementsWithNext<F, R(A...)> =
    std::is_invocable_r_v<R, const F&, Next<R(A...)>, A...>&&
        kSameCall<SignatureOf<F>, R(Next<R(A...)>, A...)>;

// The function of a hook's descriptor around an object F that `self` points to.
template <class F, class S>
struct HookEntry;
template <class F, class R, class... A>
struct HookEntry<F, R(A...)> {
  static R plain(void* self, A... a) {
    return static_cast<R>((*static_cast<const F*>(self))(std::forward<A>(a)...));
  }
  static R with_next(void* given, A... a) {
    const auto* next = static_cast<const yard_hook_next_t*>(given);
    return static_cast<R>(
        (*static_cast<const F*>(next->self))(Next<R(A...)>(next), std::forward<A>(a)...));
  }
};

// Fills in function, signature and YARD_HOOK_NEXT. `self` must point to an F.
template <class F, class S>
void describe_hook(yard_hook_t& d) noexcept {
  d.size = sizeof d;
  d.signature = signature_of<S>();
  if constexpr (kImplements<F, S>) {
    d.function = reinterpret_cast<void (*)(void)>(&HookEntry<F, S>::plain);
  } else {
    d.function = reinterpret_cast<void (*)(void)>(&HookEntry<F, S>::with_next);
    d.flags |= YARD_HOOK_NEXT;
  }
}

// Whether F implements the function S: the same signature, not one that happens to convert. A callable with several
// signatures must take the arguments as they are.
template <class F, class S>
inline constexpr bool kImplementsFunction = false;
template <class F, class R, class... A>
inline constexpr bool kImplementsFunction<F, R(A...)> =
    std::is_void_v<SignatureOf<F>> ? std::is_invocable_r_v<R, const std::decay_t<F>&, A...>
                                   : std::is_same_v<SignatureOf<F>, R(A...)>;

// Parameters of a verifier and of its function are compared without const, also that of what a pointer points to.
template <class T>
struct ComparedParameter {
  using Type = T;
};
template <class T>
struct ComparedParameter<T*> {
  using Type = const T*;
};
template <class T>
using Compared = typename ComparedParameter<std::remove_cvref_t<T>>::Type;
template <class Own, class... P>
inline constexpr bool kHasParameters = false;
template <class... P>
inline constexpr bool kHasParameters<void, P...> = true;
template <class O, class... Q, class... P>
inline constexpr bool kHasParameters<O(Q...), P...> =
    std::is_same_v<TypeList<Compared<Q>...>, TypeList<Compared<P>...>>;

// Whether V is a verifier of S: the same parameters, none of which it can change, perhaps after a FunctionQuery; and
// a Verdict, which gives the reason of a refusal.
template <class V, class S>
struct VerifierOf;
template <class V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using Own = SignatureOf<V>;
  template <class... B>
  using Invoke = std::is_invocable<const std::decay_t<V>&, B...>;
  template <class... B>
  static constexpr bool kReturnsVerdict =
      std::is_invocable_r_v<Verdict, const std::decay_t<V>&, B...>;

  static constexpr bool kAsks = Invoke<const FunctionQuery&, VerifyArg<A>...>::value &&
                                kHasParameters<Own, FunctionQuery, A...>;
  static constexpr bool kPlain =
      !kAsks && Invoke<VerifyArg<A>...>::value && kHasParameters<Own, A...>;
  static constexpr bool kFits = kAsks || kPlain;
  static constexpr bool kGivesVerdict = kAsks
                                            ? kReturnsVerdict<const FunctionQuery&, VerifyArg<A>...>
                                            : kPlain && kReturnsVerdict<VerifyArg<A>...>;

  // Asks `v` and fills in the verdict. `texts` numbers the texts of reasons and has the host.
  template <class Texts>
  static int32_t ask(const std::decay_t<V>& v, Texts& texts, VerifyArg<A>... a,
                     yard_verdict_t* to) {
    const Verdict verdict = [&]() -> Verdict {
      if constexpr (kAsks)
        return v(FunctionQuery(to->flags, texts.host()), a...);
      else
        return v(a...);
    }();
    if (verdict.accepted()) [[likely]]
      return YARD_OK;
    to->reason = verdict.text() != nullptr ? texts.number(verdict.text()) : verdict.code();
    for (int i = 0; i < 3; ++i) to->figures[i] = verdict.figures()[i];
    return YARD_DECLINED;
  }
};

}  // namespace detail
}  // namespace yard
