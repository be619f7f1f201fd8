// SPDX-License-Identifier: Apache-2.0
// Dispatched functions: any function of a program, with implementations that backends bring.
//
// The body is what the function means, and what runs when nobody else may or will:
//
//   YARD_DISPATCHED(chunk_attention, "kda") (const Args& a, Mode m) -> Tensor { ... };
//   inline const yard::Function<Tensor(const Args&, Mode)> chunk_attention{"kda", "chunk_attention", body};
//
// Both declare an object at namespace scope that is called as the function was. A backend brings an
// implementation of the same signature for function and group, and perhaps a verifier (yard/verdict.h) with the
// same parameters:
//
//   yard::Changes c;
//   c.add_backend(fast);
//   yard::implement(c, chunk_attention, "fast", fast_chunk, fast_chunk_fits, {.priority = 10});
//   yard::Runtime::shared().apply(std::move(c)).or_throw();
//
// A call asks the verifiers of the backends that are available and enabled, the highest priority first, and goes
// to the first that accepts; else to the body. When an implementation throws, the next one is asked if nothing the
// call needs has been changed: it declined (yard::Error of class `declined`), it promises `fails_before_writing`, the
// function is `repeatable`, or its parameters leave nothing to change (numbers and texts by value or const&). Not so
// under a strict policy, after `max_fallback_attempts`, where arguments were consumed (something not trivially
// copyable, passed by value), or where a commit group forbids it (yard/commit.h); then, and for mistakes of the caller
// (class `caller`), lost devices and fatal errors, the exception is the caller's.
//
// Failures count: a backend that keeps failing rests, for that function, as a kernel of an op does
// (Runtime::health(), docs/concepts/breakers.md). Its name there is the backend's, that of the op "group/name".
//
// Calls take no lock and allocate nothing, from the second of a thread on. A backend may be removed while calls
// run: those under way finish. Functions belong to Runtime::shared(). With YARD_DISABLE=1 every call is the body; inside
// a commit group that has chosen a backend before, an error.
#pragma once

#include <yard/detail/function.h>
#include <yard/detail/function_entry.h>
#include <yard/functions.h>
#include <yard/registry.h>
#include <yard/samples.h>
#include <yard/verdict.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace yard {

struct FunctionOptions {
  // Functions with one key choose together inside a commit group, as forward and backward do. Null: by itself.
  const char* choice = nullptr;
  // Whoever runs it only writes results and reads none of them: after a failure another can restart. Without it
  // that is known only of functions that have no way to write.
  bool repeatable = false;
};

template <class Signature>
class Function;

template <class R, class... A>
class Function<R(A...)> {
 public:
  using Body = R (*)(A...);
  using Samples = void (*)(const SampleCalls<R(A...)>&);
  // Group and name, letters, digits, '_', '.' and '-', are those that backends, rules and plugins know. Overloads
  // and instances of templates are functions with names of their own: see Overloads. `samples` makes calls by which
  // everybody's verifiers can be checked: see yard/samples.h and yard::verify().
  Function(const char* group, const char* name, Body body, FunctionOptions o = {},
           Samples samples = nullptr) noexcept
      : body_(body),
        site_(
            detail::declare_function({group, name, signature_of<R(A...)>(), o.choice, o.repeatable,
                                      reinterpret_cast<void (*)(void)>(samples), &take_samples})) {}
  ~Function() { detail::undeclare_function(site_); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  R operator()(A... args) const {
    if (site_->table.load(std::memory_order_relaxed) == &detail::kFunctionsOff &&
        !detail::in_commit_group())
      return body_(static_cast<A&&>(args)...);
    return detail::call_function<R, A...>(*site_, body_, args...);
  }
  // The body, whoever else there is.
  R original(A... args) const { return body_(static_cast<A&&>(args)...); }

  // The backend that ran this thread's last call of it, "original", or nothing. Remembered for some sixty
  // functions a thread. While the master switch is on: "original", whatever ran before.
  const char* last_selected() const noexcept { return detail::last_selected(site_); }
  // Asks all that could be asked about a call like this, runs none of them.
  FunctionExplanation explain(const std::remove_reference_t<A>&... args) const {
    const typename detail::ErasedArgs<A...>::Tuple tuple(args...);
    return detail::explain_function(*site_, detail::ErasedArgs<A...>::of(tuple));
  }
  // Whether verifiers, asked about a call like this, answer the same twice and on another thread, and leave
  // arguments, environment and registry as they were. What is wrong, a line each; the same is checked on every
  // call in debug builds, and where Functions::check_verifiers() asks for it.
  std::vector<std::string> check_verifiers(const std::remove_reference_t<A>&... args) const {
    const typename detail::ErasedArgs<A...>::Tuple tuple(args...);
    return detail::check_function(*site_, detail::ErasedArgs<A...>::of(tuple));
  }

  const std::string& group() const noexcept { return site_->group; }
  const std::string& name() const noexcept { return site_->name; }

 private:
  struct Taker {
    void (*take)(void* to, const detail::FunctionArgs&);
    void* to;
  };
  static void take_samples(void (*samples)(void),
                           void (*take)(void* to, const detail::FunctionArgs&), void* to) {
    using Calls = SampleCalls<R(A...)>;
    Taker taker{take, to};
    const Calls calls(
        [](void* t, const typename Calls::Arguments& args) {
          static_cast<Taker*>(t)->take(static_cast<Taker*>(t)->to,
                                       detail::ErasedArgs<A...>::of(args));
        },
        &taker);
    reinterpret_cast<Samples>(samples)(calls);
  }

  Body body_;
  detail::FunctionSite* site_;
};

namespace detail {
// Whether the parameters of a function, but for const and &, are these.
template <class F, class Given>
inline constexpr bool kTakes = false;
template <class R, class... P, class Given>
inline constexpr bool kTakes<Function<R(P...)>, Given> =
    std::is_same_v<TypeList<std::remove_cvref_t<P>...>, Given>;
}  // namespace detail

// Several functions under one name: `inline const yard::Overloads norm(norm_f32, norm_f64);`.
template <class... F>
class Overloads {
 public:
  constexpr explicit Overloads(const F&... f) noexcept : functions_(f...) {}

  template <class... A>
  requires((std::is_invocable_v<const F&, A...> || ...)) decltype(auto) operator()(
      A&&... args) const {
    return pick<0, A...>()(std::forward<A>(args)...);
  }

 private:
  // One whose parameters are these, else the first that takes them.
  template <size_t I, class... A>
  const auto& pick() const {
    using This = std::tuple_element_t<I, std::tuple<F...>>;
    using Given = detail::TypeList<std::remove_cvref_t<A>...>;
    constexpr bool any_exact = (detail::kTakes<F, Given> || ...);
    if constexpr (any_exact ? detail::kTakes<This, Given> : std::is_invocable_v<const This&, A...>)
      return std::get<I>(functions_);
    else
      return pick<I + 1, A...>();
  }
  std::tuple<const F&...> functions_;
};

struct ImplementationOptions {
  int priority = 0;          // -1000 to 1000, higher first
  bool lower_first = false;  // for ports: priorities count downwards
  bool fails_before_writing =
      false;  // when it throws, arguments and everything else are as they were
};

namespace detail {

// Reasons of the program's own verifiers: a text gets its number when it is first used.
class ProgramTexts {
 public:
  int32_t number(const char* text) noexcept {
    for (Known& k : known_) {
      const char* const t = k.text.load(std::memory_order_acquire);
      if (t == text) return k.number;
      if (t == nullptr) break;
    }
    return learn(text);
  }
  const yard_host_t* host() const noexcept { return function_host(); }

 private:
  struct Known {
    std::atomic<const char*> text{nullptr};
    int32_t number = 0;
  };
  static constexpr size_t kKnown = 16;  // more are looked up each time
  int32_t learn(const char* text) noexcept {
    const int32_t n = intern_reason(text);
    if (!learning_.exchange(true, std::memory_order_acquire)) {
      for (Known& k : known_)
        if (k.text.load(std::memory_order_relaxed) == nullptr) {
          k.number = n;
          k.text.store(text, std::memory_order_release);
          break;
        }
      learning_.store(false, std::memory_order_release);
    }
    return n;
  }
  Known known_[kKnown];
  std::atomic<bool> learning_{false};
};

}  // namespace detail

// Adds to a change that `backend`, which it adds or which is there, implements the function. `run` and `verify`
// are functions, or objects that may be called by several threads at once; they are kept until nothing uses them
// any more. Without a verifier every call is accepted. Another signature does not compile.
template <class R, class... A, class F, class V = detail::NoVerifier>
Changes& implement(Changes& changes, const Function<R(A...)>& f, const char* backend, F run,
                   V verify = {}, const ImplementationOptions& o = {}) {
  detail::check_implementation<R(A...), F, V>();
  using Entry = detail::FunctionEntry<R(A...), F, V, detail::ProgramTexts>;
  if constexpr (detail::kImplementsFunction<F, R(A...)>) {
    auto entry = std::shared_ptr<Entry>(new Entry{std::move(run), std::move(verify), {}});
    yard_hook_t d{};
    entry->describe(d);
    d.name = f.name().c_str(), d.group = f.group().c_str(), d.backend = backend;
    d.priority = o.priority;
    if (o.lower_first) d.flags |= YARD_HOOK_LOWER_FIRST;
    if (o.fails_before_writing) d.flags |= YARD_HOOK_FAILS_BEFORE_WRITING;
    changes.add_hook(d, std::move(entry));
  }
  return changes;
}

// The backend that ran this thread's last dispatched call, "original", or nothing. Calls under the master switch leave
// it as it was, and are not counted.
inline const char* last_selected() noexcept { return detail::last_selected(nullptr); }

namespace detail {

struct Declared {
  const char *group, *name;
  template <class L>
  auto operator<<(L body) const {
    using S = SignatureOf<L>;
    static_assert(!std::is_void_v<S>,
                  "a dispatched function needs parameters with types; for a template, declare one "
                  "yard::Function for each instance");
    return Function<S>(group, name, +body);
  }
};

}  // namespace detail
}  // namespace yard

// YARD_DISPATCHED(name, "group") (parameters) { body };
// At namespace scope, also in a header. The result is what the body returns, or what follows `->`.
#define YARD_DISPATCHED(name, group) \
  inline const auto name = ::yard::detail::Declared{group, #name} << []
