// SPDX-License-Identifier: Apache-2.0
// Dispatched functions: any function of a program, with implementations that backends provide.
//
//   YARD_DISPATCHED(chunk_attention, "kda") (const Args& a, Mode m) -> Tensor { ... };   // the body is the original
//   inline const yard::Function<Tensor(const Args&, Mode)> chunk{"kda", "chunk", body};  // the same without a macro
//
//   yard::add_provider("kda", [](yard::Changes& c) {     // asked before the first call of a function of the group
//     c.add_backend(fast);
//     yard::implement(c, chunk_attention, "fast", fast_chunk, fast_chunk_fits, {.priority = 10});
//     return yard::Status();
//   });
//   Tensor t = chunk_attention(args, mode);
//
// Selection. A call asks the verifiers (yard/provide.h) of the backends that are allowed, enabled, available and
// healthy, the highest priority first. The first that accepts runs; if none does, the original, which is the body.
// Backends come from Runtime::apply(), from providers, and from plugins whose manifest names the group; the latter
// two are loaded on first use. A provider that fails is reported and affects no other; load() asks it again. With
// YARD_DISABLE=1 every call runs the original. The policy of the thread's scopes (yard/policy.h) counts as it does for kernels: `backends`, vendors,
// `reference_only`; in a scope with an invalid policy a call throws yard::Error.
//
// Failure. After an exception the next implementation runs if all that the call needs is unchanged: the implementation
// declined (yard::Error of class `declined`), has `fails_before_writing`, the function is `repeatable`, or no argument can
// have been changed (numbers and texts by value or const&). The exception reaches the caller if arguments were consumed
// (passed by value and not trivially copyable), under a strict policy, after `max_fallback_attempts`,
// and for the classes `caller`, `device_lost` and `fatal`. Failures open breakers as those of kernels do
// (Runtime::health(), docs/concepts/breakers.md), with the op "group/name" and the backend as kernel.
//
// Threads. Any thread may call anything here at any time. From its second call on a thread takes no lock and
// allocates nothing, outside traces. A backend may be removed while calls run: they finish.
// Functions belong to Runtime::shared().
#pragma once

#include <yard/detail/function.h>
#include <yard/provide.h>
#include <yard/registry.h>

namespace yard {

namespace provider {
class FunctionService;
}

struct FunctionOptions {
  // Every implementation only writes results and reads none of them, so another can start over after a failure.
  bool repeatable = false;
};

struct FunctionCandidate {
  std::string backend;
  int priority = 0;
  std::string verdict;  // "selected", "able", "refused" by its verifier, "broken" verifier, "out"
  std::string reason, detail;
};

struct FunctionExplanation {
  std::string function;  // "kda/chunk_attention"
  std::string selected;  // a backend, or "original"
  std::string why;       // the master switch, if it decided instead of the priority
  std::vector<FunctionCandidate> candidates;
  // One line per candidate.
  YARD_API std::string to_text() const;
};

namespace detail {

YARD_API FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args);

}  // namespace detail

template <class Signature>
class Function;

template <class R, class... A>
class Function<R(A...)> {
 public:
  using Body = R (*)(A...);
  using Samples = void (*)(const SampleCalls<R(A...)>&);
  // Group and name (letters, digits, '_', '.', '-') are the ones that backends, rules and plugins use. Overloads and
  // instances of templates are functions with names of their own. `samples` makes the calls by which verifiers are
  // checked: see yard/provide.h and yard::verify().
  Function(const char* group, const char* name, Body body, FunctionOptions o = {},
           Samples samples = nullptr) noexcept
      : body_(body),
        site_(
            detail::declare_function({group, name, signature_of<R(A...)>(), o.repeatable,
                                      reinterpret_cast<void (*)(void)>(samples), &take_samples})) {}
  ~Function() { detail::undeclare_function(site_); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  R operator()(A... args) const {
    if (site_->table.load(std::memory_order_relaxed) == &detail::kFunctionsOff &&
        !detail::decides_for_itself())
      return body_(static_cast<A&&>(args)...);
    return detail::call_function<R, A...>(*site_, body_, args...);
  }
  // The body, whatever backends there are.
  R original(A... args) const { return body_(static_cast<A&&>(args)...); }

  // The backend that ran this thread's last call of it, "original", or "". Kept for about sixty functions per thread.
  // While the master switch is on: "original".
  const char* last_selected() const noexcept { return detail::last_selected(site_); }
  // Asks all verifiers about a call like this; runs nothing.
  FunctionExplanation explain(const std::remove_reference_t<A>&... args) const {
    const typename detail::ErasedArgs<A...>::Tuple tuple(args...);
    return detail::explain_function(*site_, detail::ErasedArgs<A...>::of(tuple));
  }
  const std::string& group() const noexcept { return site_->group; }
  const std::string& name() const noexcept { return site_->name; }

 private:
  static void take_samples(void (*samples)(void),
                           void (*take)(void* to, const detail::FunctionArgs&), void* to) {
    using Args = detail::ErasedArgs<A...>;
    auto one = [&](const typename Args::Tuple& args) { take(to, Args::of(args)); };
    reinterpret_cast<Samples>(samples)(SampleCalls<R(A...)>(
        [](void* f, const typename Args::Tuple& args) { (*static_cast<decltype(one)*>(f))(args); },
        &one));
  }

  Body body_;
  detail::FunctionSite* site_;
};

// The backend that ran this thread's last dispatched call, "original", or "". Calls under the master switch are not
// counted and do not change it.
inline const char* last_selected() noexcept { return detail::last_selected(nullptr); }

namespace detail {
// What YARD_DISPATCHED makes a function of.
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

struct ImplementationOptions {
  int priority = 0;                   // -1000 to 1000, higher first
  bool lower_first = false;           // for ports: a lower priority comes first
  bool fails_before_writing = false;  // when it throws, it has changed nothing
};

namespace detail {

// Reasons of the program's verifiers. A text gets its number on first use; YARD_REASON_REFUSED if there are too many.
class YARD_API ProgramTexts {
 public:
  int32_t number(const char* text) noexcept;
  const yard_host_t* host() const noexcept;

 private:
  struct Known {
    std::atomic<const char*> text{nullptr};
    int32_t number = 0;
  };
  Known known_[16];  // further ones are looked up each time
  std::atomic<bool> learning_{false};
};

// No verifier: accepts everything.
struct NoVerifier {};

// An implementation with its verifier behind the two functions of a descriptor.
template <class S, class F, class V>
struct FunctionEntry;
template <class R, class... A, class F, class V>
struct FunctionEntry<R(A...), F, V> {
  F run_;
  V verify_;
  ProgramTexts texts;

  static R run(void* self, A... a) {
    return static_cast<FunctionEntry*>(self)->run_(static_cast<A&&>(a)...);
  }
  static int32_t verify(void* self, VerifyArg<A>... a, yard_verdict_t* to) {
    auto& entry = *static_cast<FunctionEntry*>(self);
    return VerifierOf<V, R(A...)>::ask(entry.verify_, entry.texts, a..., to);
  }
};

}  // namespace detail

// Adds to a change that `backend`, which it adds or which exists, implements the function. `run` and `verify` are
// functions, or objects that several threads may call at once; they are kept until the last call has ended. Without a
// verifier every call is accepted. Another signature does not compile.
template <class R, class... A, class F, class V = detail::NoVerifier>
Changes& implement(Changes& changes, const Function<R(A...)>& f, const char* backend, F run,
                   V verify = {}, const ImplementationOptions& o = {}) {
  using S = R(A...);
  constexpr bool kVerified = !std::is_same_v<V, detail::NoVerifier>;
  static_assert(detail::kImplementsFunction<F, S>,
                "an implementation must have the very signature of the function it implements");
  if constexpr (kVerified) {
    using Verifier = detail::VerifierOf<V, S>;
    static_assert(Verifier::kFits,
                  "a verifier must take the function's parameters (by const& or value), perhaps "
                  "after a const yard::FunctionQuery&");
    static_assert(!Verifier::kFits || Verifier::kGivesVerdict,
                  "a verifier must return yard::Verdict: yard::Accept() or yard::Reject(why)");
  }
  if constexpr (detail::kImplementsFunction<F, S>) {
    using Entry = detail::FunctionEntry<S, F, V>;
    std::shared_ptr<Entry> entry(new Entry{std::move(run), std::move(verify), {}});
    yard_hook_t d{};
    d.size = sizeof d, d.signature = signature_of<S>(), d.self = entry.get();
    d.name = f.name().c_str(), d.group = f.group().c_str(), d.backend = backend;
    d.function = reinterpret_cast<void (*)(void)>(&Entry::run);
    if constexpr (kVerified) d.verify = reinterpret_cast<void (*)(void)>(&Entry::verify);
    d.priority = o.priority;
    if (o.lower_first) d.flags |= YARD_HOOK_LOWER_FIRST;
    if (o.fails_before_writing) d.flags |= YARD_HOOK_FAILS_BEFORE_WRITING;
    changes.add_hook(d, std::move(entry));
  }
  return changes;
}

// One backend's implementation of a function.
struct FunctionProvider {
  std::string backend;
  int priority = 0;  // higher first
  bool on = false;   // calls consider it
  std::string reason, detail;
  std::string breaker = "closed";  // or "open", "half_open": one call at a time tries it
  uint64_t calls = 0, failures = 0;
};

struct FunctionInfo {
  std::string group, name;
  std::string signature;  // as declared; of an orphan, as provided
  bool declared = false;  // false: an orphan, which is provided and not declared
  bool asked = false;     // called, or loaded: the group has been asked for its backends
  std::vector<FunctionProvider> providers;  // in the order of calls; those that are out last
  uint64_t original_calls = 0;
};

// A provider of a group.
struct FunctionSource {
  std::string group;
  std::string name;
  bool done = false;
  uint64_t attempts = 0;
  std::string error;  // of the last attempt; empty: none, or not tried yet
};

// Adds the backends and implementations of a group. Nothing of it is applied if it returns an error or throws. One
// runs at a time. Must not wait for threads that call functions or add providers.
using FunctionSetup = std::function<Status(Changes&)>;

// The functions of one runtime; valid as long as the runtime. Any thread, at any time.
class YARD_API Functions {
 public:
  // Declared and provided functions, by group and name. Loads nothing.
  std::vector<FunctionInfo> list() const;
  // One of them: "kda/chunk_attention".
  Result<FunctionInfo> find(std::string_view function) const;
  std::vector<FunctionSource> sources() const;

  // A group may have several providers. One that is added after the group was loaded is asked at once; its error is in
  // sources() and in the log. One that is added by code of a plugin that is being loaded may be asked by the next call.
  void add_provider(std::string group, FunctionSetup setup, std::string name = {});
  // Loads the group as the first call does, and asks providers again that failed. The first error; not_found: the group
  // has no functions and no plugin serves it; would_deadlock: called by code of a plugin that is being loaded.
  Status load(std::string_view group);

  explicit Functions(provider::FunctionService& service) noexcept : service_(&service) {}
  // For the library itself.
  provider::FunctionService& service() const noexcept { return *service_; }

 private:
  provider::FunctionService* service_;
};

// Of Runtime::shared().
YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});

}  // namespace yard

// YARD_DISPATCHED(name, "group") (parameters) { body };
// At namespace scope, also in a header. The result type is that of the body, or what follows `->`.
#define YARD_DISPATCHED(name, group) \
  inline const auto name = ::yard::detail::Declared{group, #name} << []
