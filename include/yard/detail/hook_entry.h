// SPDX-License-Identifier: Apache-2.0
// Hooks as C++ functions, for those who provide them: the program (yard/hook.h) and plugins
// (yard/plugin_hooks.hpp). Standalone but for plugin.h and signature.h.
//
// An implementation is called with the hook's own arguments. One that takes a Next first may ask for the next in
// the chain, at last the default, instead of or beside doing the work itself:
//
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
#pragma once

#include <yard/detail/callable.h>
#include <yard/detail/signature.h>
#include <yard/plugin.h>

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

// Whether a result becomes the hook's without loss. What is no number converts as in a return statement.
template <class From, class To>
inline constexpr bool kResultFits = std::is_convertible_v<From, To>;
template <class From, class To>
requires(std::is_arithmetic_v<From>&& std::is_arithmetic_v<To>)  //
    inline constexpr bool kResultFits<From, To> = requires(From f) {
  To{f};
};
// Whether a callable's own signature is that of a hook: the same parameters but for const and &. What has several
// (a generic lambda) must take the arguments as they come.
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

// The function of a descriptor around an object F that `self` points to.
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

}  // namespace detail
}  // namespace yard
