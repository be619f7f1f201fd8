// SPDX-License-Identifier: Apache-2.0
// What implementations of functions (yard/function.h) consist of besides their code, in programs and in plugins
// (yard/plugin_function.hpp): verifiers, sample calls, and the rest of a chain. Needs only plugin.h and detail/signature.h.
//
//   yard::Verdict fits(const Norm& n, float) {
//     if (n.width > 256) return yard::Reject("width {0} is above {1}", n.width, 256);
//     return yard::Accept();
//   }
//   void norm_samples(const yard::SampleCalls<float(const Norm&, float)>& call) {
//     std::vector<float> x(4 * 512), out(x.size());
//     call(Norm{x.data(), out.data(), 4, 64}, 1e-6f);
//     call(Norm{x.data(), out.data(), 4, 512}, 1e-6f);
//   }
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }   // extends what next() does
//
// A verifier has its function's parameters, none of which it can change, perhaps after a const FunctionQuery&. It is
// cheap, changes nothing and gives the same answer every time; several threads may call it at once. `yard verify` and
// yard::verify() ask it about every sample, several times and on several threads; nothing is run. Make samples that
// reach every branch. The function that makes them owns what the arguments point to.
#pragma once

#include <yard/detail/signature.h>
#include <yard/plugin.h>

#include <tuple>

namespace yard {

// The rest of a chain of implementations, at last the default. Valid until the implementation returns; may be called any
// number of times.
template <class Signature>
class Next;
template <class R, class... A>
class Next<R(A...)> {
 public:
  explicit Next(const yard_function_next_t* next) noexcept : next_(next) {}
  R operator()(A... a) const {
    return reinterpret_cast<R (*)(void*, A...)>(next_->function)(next_->argument,
                                                                 std::forward<A>(a)...);
  }

 private:
  const yard_function_next_t* next_;
};

struct Accept {};

// A refusal with its reason. The text is a literal, or lives as long; {n} stands for the n-th figure and is filled in
// only when the text is shown. Every distinct text is a reason of its own: keep figures out of it.
struct Reject {
  constexpr explicit Reject(const char* why, int64_t a = 0, int64_t b = 0, int64_t c = 0) noexcept
      : text(why), figures{a, b, c} {}
  // A reason of the catalogue: docs/reference/reasons.md.
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
  // Only where it is not accepted.
  constexpr const Reject& why() const noexcept { return reject_; }

 private:
  bool accepted_ = true;
  Reject reject_{YARD_REASON_REFUSED};
};

// What a verifier may ask beside its arguments; it must not probe the machine itself. Valid during the call.
class FunctionQuery {
 public:
  FunctionQuery(uint32_t flags, const yard_host_t* host) noexcept : flags_(flags), host_(host) {}
  // Set by the thread's scope (yard/policy.h): no gradient is needed.
  bool inference() const noexcept { return (flags_ & YARD_CALL_INFERENCE) != 0; }
  bool training() const noexcept { return !inference(); }
  bool deterministic() const noexcept { return (flags_ & YARD_CALL_DETERMINISTIC) != 0; }
  // By the names of docs/reference/backends.md; false if unknown.
  bool has_feature(const char* name, yard_device_t device = {1, 0}) const noexcept {
    return host_ != nullptr && host_->has_feature != nullptr &&
           host_->has_feature(host_->self, device, name) == 1;
  }
  const char* architecture() const noexcept { return YARD_ARCH_; }

 private:
  uint32_t flags_;
  const yard_host_t* host_;
};

template <class Signature>
class SampleCalls;
template <class R, class... A>
class SampleCalls<R(A...)> {
 public:
  using Arguments = std::tuple<const std::remove_reference_t<A>&...>;

  // Checks one sample.
  void operator()(const std::remove_reference_t<A>&... args) const {
    take_(to_, Arguments(args...));
  }

  // For the library itself.
  SampleCalls(void (*take)(void* to, const Arguments&), void* to) noexcept : take_(take), to_(to) {}

 private:
  void (*take_)(void* to, const Arguments&);
  void* to_;
};

namespace detail {

// How an argument is passed to a verifier: scalars by value, everything else by const&.
template <class A>
using VerifyArg =
    std::conditional_t<std::is_scalar_v<std::remove_cvref_t<A>> && !std::is_reference_v<A>, A,
                       const std::remove_reference_t<A>&>;

// The signature of a function, or of an object with one call operator; void for all others (a generic lambda).
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
template <class F>
using SignatureOf = typename decltype(find_signature<std::decay_t<F>>())::type;

// Whether F implements the function S: the same signature, not one that happens to convert.
template <class F, class S>
inline constexpr bool kImplements = false;
template <class F, class R, class... A>
inline constexpr bool kImplements<F, R(A...)> =
    std::is_void_v<SignatureOf<F>> ? std::is_invocable_r_v<R, const std::decay_t<F>&, A...>
                                   : std::is_same_v<SignatureOf<F>, R(A...)>;
// The same for an F that first takes a Next.
template <class F, class S>
inline constexpr bool kTakesNext = false;
template <class F, class R, class... A>
inline constexpr bool kTakesNext<F, R(A...)> = kImplements<F, R(Next<R(A...)>, A...)>;

// Parameters of a verifier and of its function are compared without const, also that of what a pointer points to.
template <class T, class P = std::remove_cvref_t<T>>
using Compared =
    std::conditional_t<std::is_pointer_v<P>, std::add_const_t<std::remove_pointer_t<P>>*, P>;
template <class Own, class... P>
inline constexpr bool kHasParameters = false;
template <class... P>
inline constexpr bool kHasParameters<void, P...> = true;
template <class O, class... Q, class... P>
inline constexpr bool kHasParameters<O(Q...), P...> =
    std::is_same_v<std::tuple<Compared<Q>...>, std::tuple<Compared<P>...>>;

// Whether V is a verifier of S: the same parameters, none of which it can change, perhaps after a FunctionQuery; and
// a Verdict, which gives the reason of a refusal.
template <class V, class S>
struct VerifierOf;
template <class V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using F = std::decay_t<V>;
  using Own = SignatureOf<V>;
  static constexpr bool kAsks =
      std::is_invocable_v<const F&, const FunctionQuery&, VerifyArg<A>...> &&
      kHasParameters<Own, FunctionQuery, A...>;
  static constexpr bool kPlain =
      !kAsks && std::is_invocable_v<const F&, VerifyArg<A>...> && kHasParameters<Own, A...>;
  static constexpr bool kFits = kAsks || kPlain;
  static constexpr bool kGivesVerdict =
      kAsks ? std::is_invocable_r_v<Verdict, const F&, const FunctionQuery&, VerifyArg<A>...>
            : kPlain && std::is_invocable_r_v<Verdict, const F&, VerifyArg<A>...>;

  // Asks `v` and fills in the verdict. `texts` numbers the texts of reasons and has the host.
  template <class Texts>
  static int32_t ask(const F& v, const Texts& texts, VerifyArg<A>... a, yard_verdict_t* to) {
    const Verdict verdict = [&]() -> Verdict {
      if constexpr (kAsks)
        return v(FunctionQuery(to->flags, texts.host()), a...);
      else
        return v(a...);
    }();
    if (verdict.accepted()) [[likely]]
      return YARD_OK;
    const Reject& why = verdict.why();
    to->reason = why.text != nullptr ? texts.number(why.text) : why.code;
    for (int i = 0; i < 3; ++i) to->figures[i] = why.figures[i];
    return YARD_DECLINED;
  }
};

}  // namespace detail
}  // namespace yard
