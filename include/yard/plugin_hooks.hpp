// SPDX-License-Identifier: Apache-2.0
// Hooks and dispatched functions for plugin.hpp: a function of a plugin takes the place of one of the program.
//
//   int64_t add(int64_t a, int64_t b) { return a + b; }
//   int64_t twice(yard::Next<int64_t(int64_t)> next, int64_t x) { return 2 * next(x); }
//
//   Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
//       .add(hook<add>("add").backend("acme"))
//       .add(hook<twice>("scale").backend("acme").priority(10))
//       .add(function<fast>("kda", "chunk", "acme").verify<fits>(kReasons, host).samples<some_calls>())
//
// The manifest lists the hooks (HOOKS of yard_add_plugin) and the groups of functions. A C++ type in a signature must
// be laid out as the program has it, which its text makes sure of (yard/detail/signature.h).
#pragma once

#include <yard/detail/callable.h>
#include <yard/detail/function_parameters.h>
#include <yard/detail/hook_entry.h>
#include <yard/plugin.h>
#include <yard/verdict.h>
#include <yard/plugin.hpp>

#include <span>
#include <string_view>

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

// A verifier that says its reasons in words finds their numbers in this list; the first names its text. A text that is
// not in it cannot be shown: its number is one past the end, by which the host says so, and checks call it broken.
struct ReasonTexts {
  std::span<const char* const> list;
  const yard_host_t* host = nullptr;
  int32_t number(const char* text) const noexcept {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i] == text || std::string_view(list[i]) == text)
        return YARD_REASON_OWN + static_cast<int32_t>(i);
    return YARD_REASON_OWN + static_cast<int32_t>(list.size());
  }
};

// A verifier has the function's arguments, those that are no scalars by const&, perhaps after a FunctionQuery, and
// returns a Verdict; or it has them and then a verdict to fill in. What it throws the host reports.
template <auto V, class S>
struct VerifierOf;
template <auto V, class R, class... A>
struct VerifierOf<V, R(A...)> {
  using T = decltype(V);
  using Own = yard::detail::SignatureOf<T>;
  // The same parameters, not some that happen to convert. What has several (a generic lambda) must take the
  // arguments as they come.
  template <class... P>
  static constexpr bool kTakes =
      std::is_void_v<Own> || std::is_same_v<typename yard::detail::Parameters<Own>::List,
                                            yard::detail::TypeList<yard::detail::Plain<P>...>>;
  template <class... B>
  using Says = std::is_invocable_r<Verdict, T, B...>;
  static constexpr bool kAsks = kTakes<FunctionQuery, A...> &&
                                Says<const FunctionQuery&, yard::detail::VerifyArg<A>...>::value;
  static constexpr bool kSays = kTakes<A...> && Says<yard::detail::VerifyArg<A>...>::value;
  static constexpr bool kFills =
      kTakes<A..., yard_verdict_t*> &&
      std::is_invocable_r_v<int32_t, T, yard::detail::VerifyArg<A>..., yard_verdict_t*>;
  static_assert(
      kAsks || kSays || kFills,
      "a verifier is yard::Verdict(A...) or int32_t(A..., yard_verdict_t*), where A... are "
      "its function's, perhaps after a const yard::FunctionQuery&");
  static inline ReasonTexts texts;

  static int32_t entry(void*, yard::detail::VerifyArg<A>... a, yard_verdict_t* verdict) {
    if constexpr (!kAsks && !kSays) {
      return V(a..., verdict);
    } else {
      const Verdict v = [&]() -> Verdict {
        if constexpr (kAsks)
          return V(FunctionQuery(static_cast<uint32_t>(verdict->pad_), texts.host), a...);
        else
          return V(a...);
      }();
      if (v.accepted()) return YARD_OK;
      verdict->reason = v.text() != nullptr ? texts.number(v.text()) : v.code();
      for (int i = 0; i < 3; ++i) verdict->figures[i] = v.figures()[i];
      return YARD_DECLINED;
    }
  }
};

// Sample calls, as a host that does not know their types takes them.
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

// A hook around the function F; by itself it may override.
template <auto F>
Hook hook(const char* name) noexcept {
  using H = detail::HookOf<F, decltype(F)>;
  Hook h(name);
  h.d.signature = signature_of<typename H::Signature>();
  h.d.function = reinterpret_cast<void (*)(void)>(&H::entry);
  h.d.flags = H::kTakesNext ? YARD_HOOK_NEXT | YARD_HOOK_OVERRIDES : YARD_HOOK_OVERRIDES;
  return h;
}

// An implementation of a dispatched function. Knows its signature, so that a verifier is held against it.
template <class S>
class Function : public Hook {
 public:
  explicit Function(const char* name) noexcept : Hook(name) {}
  // `texts` are those of all reasons it gives in words, and must stay; `host` answers its FunctionQuery.
  template <auto V>
  Function& verify(std::span<const char* const> texts = {},
                   const yard_host_t* host = nullptr) noexcept {
    using Verifier = detail::VerifierOf<V, S>;
    Verifier::texts = {texts, host};
    if (!texts.empty()) reasons(texts);
    d.verify = reinterpret_cast<void (*)(void)>(&Verifier::entry);
    return *this;
  }
  // M makes calls by which the verifier can be checked: see yard/verdict.h.
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
  static_assert(!H::kTakesNext, "a dispatched function asks for no next one");
  Function<typename H::Signature> f(name);
  f.d.group = group, f.d.backend = backend;
  f.d.signature = signature_of<typename H::Signature>();
  f.d.function = reinterpret_cast<void (*)(void)>(&H::entry);
  return f;
}

}  // namespace yard::plugin
