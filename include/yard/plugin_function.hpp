// SPDX-License-Identifier: Apache-2.0
// Implementations of functions in plugins, for plugin.hpp.
//
//   int64_t add(int64_t a, int64_t b) { return a + b; }
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
//
//   Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
//       .add(function<add>("math", "add", "acme"))
//       .add(function<twice>("math", "scale", "acme").results<scale_samples, identity>().priority(10))
//       .add(function<fast>("kda", "chunk", "acme").verify<fits>(kReasons, host).samples<some_calls>())
//
// The manifest lists the groups (FUNCTIONS of yard_add_plugin). Signatures are compared at load with those of the program,
// with the layouts of C++ types (yard/detail/signature.h).
#pragma once

#include <yard/verdict.h>
#include <yard/plugin.hpp>

namespace yard::plugin {

namespace detail {

// A function without state: `self` is not used.
template <auto F, class S = yard::detail::SignatureOf<decltype(F)>>
struct EntryOf;
template <auto F, class R, class... A>
struct EntryOf<F, R(A...)> {
  using Signature = R(A...);
  static constexpr bool kTakesNext = false;
  static R entry(void*, A... a) { return F(std::forward<A>(a)...); }
};
template <auto F, class R, class... A>
struct EntryOf<F, R(Next<R(A...)>, A...)> {
  using Signature = R(A...);
  static constexpr bool kTakesNext = true;
  static R entry(void* given, A... a) {
    return F(Next<R(A...)>(static_cast<const yard_function_next_t*>(given)), std::forward<A>(a)...);
  }
};

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

// The host reports exceptions of verifiers.
template <auto V, class S>
struct VerifierOf;
template <auto V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using Typed = yard::detail::VerifierOf<decltype(V), R(A...)>;
  static_assert(Typed::kGivesVerdict,
                "a verifier is yard::Verdict(A...), where A... are its function's, perhaps after a "
                "const yard::FunctionQuery&");
  static inline ReasonTexts texts;

  static int32_t entry(void*, yard::detail::VerifyArg<A>... a, yard_verdict_t* verdict) {
    return Typed::ask(V, texts, a..., verdict);
  }
};

// Hands the host a sample call, which is ask(function, self of the function, verdict).
template <class F>
void take_sample(const yard_samples_t& to, F ask) {
  const yard_sample_t sample{
      sizeof sample, 0, &ask,
      [](void* f, void (*function)(void), void* of, yard_verdict_t* verdict) -> int32_t {
        return (*static_cast<F*>(f))(function, of, verdict);
      }};
  to.take(to.self, &sample);
}

// Asks a verifier about the calls that M makes.
template <auto M, class S>
struct SamplesOf;
template <auto M, class R, class... A>
struct SamplesOf<M, R(A...)> {
  using Calls = SampleCalls<R(A...)>;
  using Verify = int32_t (*)(void*, yard::detail::VerifyArg<A>..., yard_verdict_t*);
  static_assert(std::is_invocable_v<decltype(M), const Calls&>,
                "sample calls are made by a void(const yard::SampleCalls<S>&), where S is the "
                "function's signature");

  static void take(void* host, const typename Calls::Arguments& args) {
    take_sample(*static_cast<const yard_samples_t*>(host),
                [&](void (*verify)(void), void* of, yard_verdict_t* verdict) {
                  const auto ask = [&](const auto&... a) {
                    return reinterpret_cast<Verify>(verify)(of, a..., verdict);
                  };
                  return std::apply(ask, args);
                });
  }
  static void entry(void*, const void* to) { M(Calls(&take, const_cast<void*>(to))); }
};

}  // namespace detail

// Sample calls with results, which `yard verify` runs: `call(expected, arguments...)`, where `expected` is the result, or a
// predicate of it; of a function that returns nothing, a predicate without parameters.
template <class Signature>
class ResultSamples;
template <class R, class... A>
class ResultSamples<R(A...)> {
 public:
  template <class T>
  using Passed = std::conditional_t<std::is_reference_v<T>, T, const T&>;

  // The function may be run more than once: arguments are passed by value or as they are, and not moved.
  template <class E>
  void operator()(const E& expected, A... args) const {
    detail::take_sample(to_, [&](void (*function)(void), void* of, yard_verdict_t*) {
      const auto run = [&]() -> R {
        return reinterpret_cast<R (*)(void*, A...)>(function)(next_ != nullptr ? next_ : of,
                                                              static_cast<Passed<A>>(args)...);
      };
      const auto holds = [&]() -> bool {
        if constexpr (std::is_void_v<R>)
          return run(), expected();
        else if constexpr (std::is_invocable_r_v<bool, const E&, R>)
          return expected(run());
        else
          return run() == expected;
      };
      return holds() ? YARD_OK : YARD_FAULT;
    });
  }

  // For the library itself.
  ResultSamples(const yard_samples_t& to, void* next) noexcept : to_(to), next_(next) {}

 private:
  const yard_samples_t& to_;
  void* next_;
};

// An implementation around the function F.
template <auto F>
class Function : public FunctionDef {
 public:
  using Entry = detail::EntryOf<F>;
  using Signature = typename Entry::Signature;
  Function(const char* group, const char* name, const char* backend) noexcept
      : FunctionDef(group, name, backend) {
    d.signature = signature_of<Signature>();
    d.function = reinterpret_cast<void (*)(void)>(&Entry::entry);
    d.flags = Entry::kTakesNext ? YARD_FUNCTION_NEXT : 0;
  }
  // `texts` lists the texts of all its reasons, and must outlive the plugin's use; `host` answers its FunctionQuery.
  template <auto V>
  Function& verify(std::span<const char* const> texts = {},
                   const yard_host_t* host = nullptr) noexcept {
    using Verifier = detail::VerifierOf<V, Signature>;
    Verifier::texts = {texts, host};
    if (!texts.empty()) reasons(texts);
    d.verify = reinterpret_cast<void (*)(void)>(&Verifier::entry);
    return *this;
  }
  // M makes sample calls, by which the verifier is checked: see yard/verdict.h.
  template <auto M>
  Function& samples() noexcept {
    d.samples = &detail::SamplesOf<M, Signature>::entry;
    return *this;
  }
  // M makes sample calls with results, for a function without a verifier. N serves as the next one if F takes a yard::Next.
  template <auto M, auto N = nullptr>
  Function& results() noexcept {
    using Calls = ResultSamples<Signature>;
    static_assert(std::is_invocable_v<decltype(M), const Calls&>,
                  "sample calls are made by a void(const ResultSamples<S>&), where S is the "
                  "function's signature");
    d.samples = [](void*, const void* to) {
      yard_function_next_t next{};
      next.size = sizeof next;
      if constexpr (Entry::kTakesNext) {
        using Default = detail::EntryOf<N>;
        static_assert(std::is_same_v<typename Default::Signature, Signature>,
                      "results<M, N>(): N, which serves as the next one, has F's signature");
        next.function = reinterpret_cast<void (*)(void)>(&Default::entry);
      }
      M(Calls(*static_cast<const yard_samples_t*>(to), Entry::kTakesNext ? &next : nullptr));
    };
    return *this;
  }
};

template <auto F>
Function<F> function(const char* group, const char* name, const char* backend) noexcept {
  return {group, name, backend};
}

}  // namespace yard::plugin
