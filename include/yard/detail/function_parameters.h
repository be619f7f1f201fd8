// SPDX-License-Identifier: Apache-2.0
// Parameters of a function and of its verifier, to be compared. Standalone: plugins include it, too. Not for direct use.
#pragma once

#include <type_traits>

namespace yard::detail {

template <class... T>
struct TypeList {};
// A parameter's type for comparing: whether it, or what it points to, may be changed does not matter.
template <class T>
struct PlainParameter {
  using Type = T;
};
template <class T>
struct PlainParameter<T*> {
  using Type = const T*;
};
template <class T>
using Plain = typename PlainParameter<std::remove_cvref_t<T>>::Type;
template <class S>
struct Parameters {
  using List = void;
};
template <class R, class... A>
struct Parameters<R(A...)> {
  using List = TypeList<Plain<A>...>;
};

}  // namespace yard::detail
