// SPDX-License-Identifier: Apache-2.0
// The signatures of things that can be called. Not for direct use.
#pragma once

#include <type_traits>

namespace yard::detail {

// The signature of a function, or of an object with one way to be called; void where there is none.
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

}  // namespace yard::detail
