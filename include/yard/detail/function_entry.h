// SPDX-License-Identifier: Apache-2.0
// Implementations and verifiers as the functions of a descriptor, for the program (function.h) and for plugins
// (plugin_function.hpp). Not for direct use.
#pragma once

#include <yard/detail/callable.h>
#include <yard/detail/function.h>
#include <yard/detail/function_parameters.h>
#include <yard/detail/signature.h>
#include <yard/verdict.h>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace yard::detail {

// Whether F is an implementation of S: the same signature, not one that happens to convert. What has several
// (a generic lambda) must take the arguments as they come.
template <class F, class S>
inline constexpr bool kImplementsFunction = false;
template <class F, class R, class... A>
inline constexpr bool kImplementsFunction<F, R(A...)> =
    std::is_void_v<SignatureOf<F>> ? std::is_invocable_r_v<R, const std::decay_t<F>&, A...>
                                   : std::is_same_v<SignatureOf<F>, R(A...)>;

// Whether V is a verifier of S: the same parameters, none of which it can change, perhaps after a FunctionQuery;
// and a Verdict, since a bare no helps nobody.
template <class V, class S>
struct VerifierOf;
template <class V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using Own = SignatureOf<V>;
  using Listed = typename Parameters<Own>::List;
  static constexpr bool kSame = std::is_same_v<Listed, TypeList<Plain<A>...>>;
  static constexpr bool kSameAfterQuery =
      std::is_same_v<Listed, TypeList<FunctionQuery, Plain<A>...>>;
  template <class... B>
  static constexpr bool kCallable = std::is_invocable_v<const std::decay_t<V>&, B...>;
  static constexpr bool kAsks =
      kCallable<const FunctionQuery&, VerifyArg<A>...> && (std::is_void_v<Own> || kSameAfterQuery);
  static constexpr bool kPlain =
      kCallable<VerifyArg<A>...> && (std::is_void_v<Own> || kSame) && !kAsks;
  static constexpr bool kFits = kAsks || kPlain;
  static constexpr bool kSaysWhy = [] {
    if constexpr (kAsks)
      return std::is_convertible_v<
          std::invoke_result_t<const std::decay_t<V>&, const FunctionQuery&, VerifyArg<A>...>,
          Verdict>;
    else if constexpr (kPlain)
      return std::is_convertible_v<std::invoke_result_t<const std::decay_t<V>&, VerifyArg<A>...>,
                                   Verdict>;
    else
      return false;
  }();
};

// Accepts everything: no verifier at all.
struct NoVerifier {};

// An implementation with its verifier, behind the two functions of a descriptor. `Texts` numbers the texts of
// reasons and knows the host.
template <class S, class F, class V, class Texts>
struct FunctionEntry;
template <class R, class... A, class F, class V, class Texts>
struct FunctionEntry<R(A...), F, V, Texts> {
  F run_;
  V verify_;
  Texts texts;

  static R run(void* self, A... a) {
    return static_cast<FunctionEntry*>(self)->run_(static_cast<A&&>(a)...);
  }
  static int32_t verify(void* self, VerifyArg<A>... a, yard_verdict_t* to) {
    auto& entry = *static_cast<FunctionEntry*>(self);
    const Verdict v = entry.judge(to->flags, a...);
    if (v.accepted()) [[likely]]
      return YARD_OK;
    to->reason = v.text() != nullptr ? entry.texts.number(v.text()) : v.code();
    for (int i = 0; i < 3; ++i) to->figures[i] = v.figures()[i];
    return YARD_DECLINED;
  }

  // Fills in what follows from the types; `this` must stay.
  void describe(yard_hook_t& d) noexcept {
    d.size = sizeof d;
    d.signature = signature_of<R(A...)>();
    d.self = this;
    d.function = reinterpret_cast<void (*)(void)>(&FunctionEntry::run);
    if constexpr (!std::is_same_v<V, NoVerifier>)
      d.verify = reinterpret_cast<void (*)(void)>(&FunctionEntry::verify);
  }

 private:
  Verdict judge([[maybe_unused]] uint32_t flags, VerifyArg<A>... a) const {
    if constexpr (std::is_same_v<V, NoVerifier>)
      return ((void)a, ..., Verdict(Accept()));
    else if constexpr (VerifierOf<V, R(A...)>::kAsks)
      return verify_(FunctionQuery(flags, texts.host()), a...);
    else
      return verify_(a...);
  }
};

// What implement() and plugins insist on.
template <class S, class F, class V>
constexpr void check_implementation() {
  static_assert(kImplementsFunction<F, S>,
                "an implementation must have the very signature of the function it implements");
  if constexpr (!std::is_same_v<std::decay_t<V>, NoVerifier>) {
    static_assert(VerifierOf<V, S>::kFits,
                  "a verifier must take the function's parameters (by const& or value), perhaps "
                  "after a const yard::FunctionQuery&");
    static_assert(!VerifierOf<V, S>::kFits || VerifierOf<V, S>::kSaysWhy,
                  "a verifier must return yard::Verdict: yard::Accept() or yard::Reject(why)");
  }
}

}  // namespace yard::detail
