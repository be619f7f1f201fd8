// SPDX-License-Identifier: Apache-2.0
// With this header, plugins implement functions of programs (docs/guides/functions.md).
//
//   Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
//       .add(function<add>("math", "add", "acme").priority(10))
//       .add(function<fast>("kda", "chunk", "acme").verify<fits>(kReasons).samples<some_calls>())
//
// The manifest must list the groups (FUNCTIONS of yard_add_plugin). Loading compares signatures.
#pragma once

#include <yard/verdict.h>
#include <yard/plugin.hpp>

namespace yard::plugin {

namespace detail {

using namespace yard::detail;

template <class S>
struct WithoutNext : std::type_identity<S> {};
template <class R, class... A>
struct WithoutNext<R(Next<R(A...)>, A...)> : std::type_identity<R(A...)> {};

// Numbers reasons by their place in `list`. A text that is not in the list gets the number past the
// end, for which the host has a message; checks report the verifier as broken.
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

template <class F>
void take_sample(const void* to, F ask) {
  const yard_sample_t sample{
      sizeof sample, 0, &ask,
      [](void* f, void (*function)(void), void* of, yard_verdict_t* verdict) -> int32_t {
        return (*static_cast<F*>(f))(function, of, verdict);
      }};
  const auto* samples = static_cast<const yard_samples_t*>(to);
  samples->take(samples->self, &sample);
}

template <class S>
struct TakeArguments;
template <class R, class... A>
struct TakeArguments<R(A...)> {
  static void take(void* to, const typename SampleCalls<R(A...)>::Arguments& args) {
    take_sample(to, [&](void (*verify)(void), void* of, yard_verdict_t* verdict) {
      using Verify = int32_t (*)(void*, VerifyArg<A>..., yard_verdict_t*);
      const auto ask = [&](const auto&... a) {
        return reinterpret_cast<Verify>(verify)(of, a..., verdict);
      };
      return std::apply(ask, args);
    });
  }
};

}  // namespace detail

// Takes sample calls with results, which `yard verify` runs. In `call(expected, arguments...)`,
// `expected` is the result or a predicate of it, without a parameter if the function returns void.
template <class Signature>
class ResultSamples;
template <class R, class... A>
class ResultSamples<R(A...)> {
 public:
  // For the library. `next` is null if the function takes no Next.
  ResultSamples(const void* to, yard_function_next_t* next) noexcept : to_(to), next_(next) {}

  // The function may be run more than once, so arguments are not moved.
  template <class E>
  void operator()(const E& expected, A... args) const {
    detail::take_sample(to_, [&](void (*function)(void), void* of, yard_verdict_t*) {
      if (next_ != nullptr) next_->self = of;
      const auto run = [&]() -> R {
        return reinterpret_cast<R (*)(void*, A...)>(function)(
            next_ != nullptr ? next_ : of,
            static_cast<std::conditional_t<std::is_reference_v<A>, A, const A&>>(args)...);
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

 private:
  const void* to_;
  yard_function_next_t* next_;
};

template <auto F>
class Function {
 public:
  using Signature = typename detail::WithoutNext<detail::SignatureOf<decltype(F)>>::type;
  Function(const char* group, const char* name, const char* backend) noexcept {
    d.size = sizeof d, d.group = group, d.name = name, d.backend = backend;
    entry<detail::NoVerifier>.describe(d);
  }
  Function& priority(int32_t p) noexcept { return d.priority = p, *this; }
  Function& flags(uint32_t f) noexcept { return d.flags |= f, *this; }
  // `texts` lists all reasons and must outlive the use of the plugin. `host` is for FunctionQuery.
  template <auto V>
  Function& verify(std::span<const char* const> texts = {},
                   const yard_host_t* host = nullptr) noexcept {
    entry<detail::Fixed<V>>.texts = {texts, host};
    entry<detail::Fixed<V>>.describe(d);
    d.reasons = texts.data(), d.reason_count = static_cast<uint32_t>(texts.size());
    return *this;
  }
  // M(const SampleCalls<Signature>&) makes the calls that check the verifier.
  template <auto M>
  Function& samples() noexcept {
    d.samples = [](void*, const void* to) {
      M(SampleCalls<Signature>(&detail::TakeArguments<Signature>::take, const_cast<void*>(to)));
    };
    return *this;
  }
  // M(const ResultSamples<Signature>&) checks results. N is the next one if F takes a yard::Next.
  template <auto M, auto N = nullptr>
  Function& results() noexcept {
    d.samples = [](void*, const void* to) {
      if constexpr (Entry<detail::NoVerifier>::kTakesNext) {
        const Function<N> last("", "", "");
        static_assert(std::is_same_v<typename Function<N>::Signature, Signature>,
                      "results<M, N>(): N, which serves as the next one, has F's signature");
        yard_function_next_t next{sizeof next, 0, nullptr, last.d.self, last.d.function};
        M(ResultSamples<Signature>(to, &next));
      } else {
        M(ResultSamples<Signature>(to, nullptr));
      }
    };
    return *this;
  }
  operator const yard_function_t&() const noexcept { return d; }
  yard_function_t d{};

 private:
  template <class V>
  using Entry = detail::FunctionEntry<Signature, detail::Fixed<F>, V, detail::ReasonTexts>;
  template <class V>
  static inline Entry<V> entry{};
};

template <auto F>
Function<F> function(const char* group, const char* name, const char* backend) noexcept {
  return {group, name, backend};
}

}  // namespace yard::plugin
