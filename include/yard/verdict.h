// SPDX-License-Identifier: Apache-2.0
// Verifiers and Next, for implementations of functions (function.h). Standalone with plugin.h.
//
//   yard::Verdict fits(const Norm& n, float) {
//     if (n.width > 256) return yard::Reject("width {0} is above {1}", n.width, 256);
//     return yard::Accept();
//   }
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
//
// A verifier has its function's parameters, perhaps after a const FunctionQuery&, and changes
// nothing. It must be cheap and always give the same answer. Several threads may call it.
#pragma once

#include <yard/detail/exceptions.h>
#include <yard/detail/signature.h>
#include <yard/plugin.h>

#include <tuple>

namespace yard {

// The rest of a chain of implementations up to the default. Valid until its caller returns.
template <class Signature>
class Next;
template <class R, class... A>
class Next<R(A...)> {
 public:
  explicit Next(const yard_function_next_t* next) noexcept : next_(next) {}
  YARD_MODE_TAG R operator()(A... a) const {
    return reinterpret_cast<R (*)(void*, A...)>(next_->function)(next_->argument,
                                                                 std::forward<A>(a)...);
  }

 private:
  const yard_function_next_t* next_;
};

struct Accept {};

// Each distinct text is a reason and must live as long as the program. {n} stands for figure n.
struct Reject {
  constexpr explicit Reject(const char* why, int64_t a = 0, int64_t b = 0, int64_t c = 0) noexcept
      : text(why), figures{a, b, c} {}
  constexpr explicit Reject(yard_reason_t reason, int64_t a = 0, int64_t b = 0,
                            int64_t c = 0) noexcept
      : code(reason != YARD_REASON_NONE ? reason : YARD_REASON_REFUSED), figures{a, b, c} {}
  const char* text = nullptr;
  int32_t code = YARD_REASON_REFUSED;
  int64_t figures[3];
};

class Verdict {
 public:
  constexpr Verdict(Accept) noexcept {}  // NOLINT: implicit on purpose, as the next
  constexpr Verdict(const Reject& r) noexcept : accepted_(false), reject_(r) {}

  constexpr bool accepted() const noexcept { return accepted_; }
  constexpr const Reject& why() const noexcept { return reject_; }  // only valid if not accepted

 private:
  bool accepted_ = true;
  Reject reject_{YARD_REASON_REFUSED};
};

// Answers what a verifier asks beside its arguments; it must not probe the machine itself.
class FunctionQuery {
 public:
  FunctionQuery(uint32_t flags, const yard_host_t* host) noexcept : flags_(flags), host_(host) {}
  bool inference() const noexcept { return (flags_ & YARD_CALL_INFERENCE) != 0; }
  bool training() const noexcept { return !inference(); }
  bool deterministic() const noexcept { return (flags_ & YARD_CALL_DETERMINISTIC) != 0; }
  // Returns false for an unknown name; docs/reference/backends.md lists the names.
  bool has_feature(const char* name, yard_device_t device = {1, 0}) const noexcept {
    return host_ != nullptr && host_->has_feature != nullptr &&
           host_->has_feature(host_->self, device, name) == 1;
  }

 private:
  uint32_t flags_;
  const yard_host_t* host_;
};

// Takes sample calls for verifiers, at best one for each branch. Borrows the arguments.
template <class Signature>
class SampleCalls;
template <class R, class... A>
class SampleCalls<R(A...)> {
 public:
  using Arguments = std::tuple<const std::remove_reference_t<A>&...>;
  SampleCalls(void (*take)(void* to, const Arguments&), void* to) noexcept : take_(take), to_(to) {}

  void operator()(const std::remove_reference_t<A>&... args) const {
    take_(to_, Arguments(args...));
  }

 private:
  void (*take_)(void* to, const Arguments&);
  void* to_;
};

namespace detail {

template <class A>
using VerifyArg =
    std::conditional_t<std::is_scalar_v<std::remove_cvref_t<A>> && !std::is_reference_v<A>, A,
                       const std::remove_reference_t<A>&>;

template <auto F>
struct Fixed {
  template <class... P>
  auto operator()(P&&... p) const -> decltype(F(std::forward<P>(p)...)) {
    return F(std::forward<P>(p)...);
  }
};

// The signature of a function or an object with one call operator, or void for a generic lambda.
template <class R, class... A>
std::type_identity<R(A...)> signature_in(R (*)(A...));
template <class C, class R, class... A>
std::type_identity<R(A...)> signature_in(R (C::*)(A...));
template <class C, class R, class... A>
std::type_identity<R(A...)> signature_in(R (C::*)(A...) const);
template <class F>
constexpr auto find_signature() {
  if constexpr (requires(F f) { signature_in(f); })
    return decltype(signature_in(std::declval<F>()))();
  else if constexpr (requires { signature_in(&F::operator()); })
    return decltype(signature_in(&F::operator()))();
  else
    return std::type_identity<void>();
}
template <auto F>
auto signature_in(Fixed<F>) {
  return find_signature<std::decay_t<decltype(F)>>();
}
template <class F>
using SignatureOf = typename decltype(find_signature<std::decay_t<F>>())::type;

// Whether F implements the signature S itself and does not just convert to it.
template <class F, class S>
inline constexpr bool kImplements = false;
template <class F, class R, class... A>
inline constexpr bool kImplements<F, R(A...)> =
    std::is_void_v<SignatureOf<F>> ? std::is_invocable_r_v<R, const std::decay_t<F>&, A...>
                                   : std::is_same_v<SignatureOf<F>, R(A...)>;

// Whether V can be called with the parameters P and declares them, apart from const.
template <class T, class P = std::remove_cvref_t<T>>
using Compared =
    std::conditional_t<std::is_pointer_v<P>, std::add_const_t<std::remove_pointer_t<P>>*, P>;
template <class Own, class... P>
inline constexpr bool kHasParameters = std::is_void_v<Own>;
template <class O, class... Q, class... P>
inline constexpr bool kHasParameters<O(Q...), P...> =
    std::is_same_v<std::tuple<Compared<Q>...>, std::tuple<Compared<P>...>>;
template <class V, class... P>
inline constexpr bool kTakes =
    std::is_invocable_v<const V&, P...>&& kHasParameters<SignatureOf<V>, P...>;

struct NoVerifier {};  // stands for a verifier that accepts everything

// Makes C functions of an implementation and its verifier. Texts numbers reasons and has the host.
template <class S, class F, class V, class Texts>
struct FunctionEntry;
template <class R, class... A, class F, class V, class Texts>
struct FunctionEntry<R(A...), F, V, Texts> {
  static constexpr bool kTakesNext = kImplements<F, R(Next<R(A...)>, A...)>;
  static constexpr bool kVerified = !std::is_same_v<V, NoVerifier>;
  static constexpr bool kAsks = kTakes<V, const FunctionQuery&, VerifyArg<A>...>;
  static_assert(kTakesNext || kImplements<F, R(A...)>,
                "an implementation must have the very signature of the function it implements");
  static_assert(!kVerified || kAsks || kTakes<V, VerifyArg<A>...>,
                "a verifier must take the function's parameters (by const& or value), perhaps "
                "after a const yard::FunctionQuery&");

  F function;
  V verifier;
  Texts texts;

  YARD_MODE_TAG static R run(void* given, A... a) {
    if constexpr (kTakesNext) {
      const auto* next = static_cast<const yard_function_next_t*>(given);
      return static_cast<FunctionEntry*>(next->self)
          ->function(Next<R(A...)>(next), static_cast<A&&>(a)...);
    } else {
      return static_cast<FunctionEntry*>(given)->function(static_cast<A&&>(a)...);
    }
  }
  YARD_MODE_TAG static int32_t verify(void* self, VerifyArg<A>... a, yard_verdict_t* to) {
    const auto& e = *static_cast<const FunctionEntry*>(self);
    const auto ask = [&] {
      if constexpr (kAsks)
        return e.verifier(FunctionQuery(to->flags, e.texts.host()), a...);
      else
        return e.verifier(a...);
    };
    static_assert(std::is_convertible_v<decltype(ask()), Verdict>,
                  "a verifier must return yard::Verdict: yard::Accept() or yard::Reject(why)");
    const Verdict verdict = ask();
    if (verdict.accepted()) [[likely]]
      return YARD_OK;
    const Reject& why = verdict.why();
    to->reason = why.text != nullptr ? e.texts.number(why.text) : why.code;
    for (int i = 0; i < 3; ++i) to->figures[i] = why.figures[i];
    return YARD_DECLINED;
  }
  YARD_MODE_TAG void describe(yard_function_t& d) noexcept {
    d.signature = signature_of<R(A...)>(), d.self = this;
    d.function = reinterpret_cast<void (*)(void)>(&run);
    if constexpr (kVerified) d.verify = reinterpret_cast<void (*)(void)>(&verify);
    if (kTakesNext) d.flags |= YARD_FUNCTION_NEXT;
  }
};

}  // namespace detail
}  // namespace yard
