// SPDX-License-Identifier: Apache-2.0
// Functions of a program that backends can implement. The original is always the fallback.
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
//   inline const yard::Function<Value(Builder&, Value)> atomic_add{"codegen", "atomic_add"};  // only active backends
//   return atomic_add.call_or([&] { return emit_default(b, v); }, b, v);                      // calls them, or the default
//   runtime.functions().activate("acme").or_throw();             // for the process
//   runtime.functions().activate("acme", {2, 0}).or_throw();     // for threads in a Scope().device({2, 0})
//   yard::ScopedPolicy in(yard::Scope().backend("acme"));        // for this thread until the end of the block
//
// Selection::kEnabled. A call asks the verifiers (yard/verdict.h) of the backends that are allowed, enabled, available and
// healthy, the highest priority first. The first that accepts runs; if none does, the original. After an exception the next
// one runs if all that the call needs is unchanged; docs/guides/functions.md has the rules. Failures open breakers as those of
// kernels do (Runtime::health()), with the op "group/name" and the backend as kernel.
//
// Selection::kActive. A call runs the first of: the backends of the thread's scopes, the innermost first; those that are
// active for its device; those that are active for the process. Within the last two, higher priority comes first, then what
// was activated later. An implementation that takes a yard::Next may call the next one, at last the default. Exceptions
// reach the caller. Any result, also zero, false, empty or null, is returned as it is.
//
// Backends come from Runtime::apply(), from providers, and from plugins whose manifest names the group; the latter two are
// loaded on first use. With YARD_DISABLE=1 every call runs the original. The policy of the thread's scopes (yard/policy.h)
// counts as it does for kernels; in a scope with an invalid policy a call throws yard::Error.
//
// Any thread may call anything here at any time. From its second call on a thread takes no lock and allocates nothing, outside
// traces. A backend may be removed while calls run: they finish. All functions of a backend switch at one moment. Functions
// belong to Runtime::shared().
#pragma once

#include <yard/detail/function.h>
#include <yard/registry.h>

namespace yard {

namespace functions {
class Service;
}

struct FunctionOptions {
  // Every implementation only writes results and reads none of them, so another can start over after a failure.
  bool repeatable = false;
  Selection selection = Selection::kEnabled;
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
  std::string why;       // if not priority decided: the master switch
  std::vector<FunctionCandidate> candidates;
  // One line per candidate.
  YARD_API std::string to_text() const;
};

namespace detail {
YARD_API FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args);
[[noreturn]] YARD_API void no_default(const FunctionSite& site);
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
  // checked: see yard/verdict.h and yard::verify().
  Function(const char* group, const char* name, Body body, FunctionOptions o = {},
           Samples samples = nullptr) noexcept
      : body_(body),
        site_(detail::declare_function(group, name, signature_of<R(A...)>(), o.selection,
                                       o.repeatable, reinterpret_cast<void (*)(void)>(samples),
                                       &take_samples)) {}
  // A function whose default is given with each call: see call_or().
  Function(const char* group, const char* name,
           FunctionOptions o = {.selection = Selection::kActive}) noexcept
      : Function(group, name, Body{nullptr}, o) {}
  ~Function() { detail::undeclare_function(site_); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  // Throws yard::Error if no backend runs the call and there is no body.
  R operator()(A... args) const {
    if (detail::is_quiet(*site_) && body_ != nullptr) return body_(static_cast<A&&>(args)...);
    return detail::call_function<R, A...>(*site_, {&run_body, const_cast<Function*>(this)},
                                          args...);
  }
  // Runs `fallback()` if no backend runs the call. The arguments are used only if a backend does. A backend that calls the
  // next one may reach `fallback()`, too, which sees the caller's variables, from which the call may have moved.
  template <class F>
  R call_or(F&& fallback, A... args) const {
    static_assert(std::is_invocable_r_v<R, F&>,
                  "the default of a function takes nothing and returns what the function does");
    if (detail::is_quiet(*site_)) return static_cast<R>(fallback());
    using Kept = std::remove_reference_t<F>;
    const auto run = [](void* f, A...) -> R { return static_cast<R>((*static_cast<Kept*>(f))()); };
    void* const context = const_cast<void*>(static_cast<const void*>(std::addressof(fallback)));
    return detail::call_function<R, A...>(*site_, {+run, context}, args...);
  }

  // The backend that ran this thread's last call of it, "original", or "". Kept for about sixty functions per thread.
  // While no backend serves it: "original".
  const char* last_selected() const noexcept { return detail::last_selected(site_); }
  // Asks all verifiers about a call like this; runs nothing.
  FunctionExplanation explain(const std::remove_reference_t<A>&... args) const {
    return detail::explain_function(*site_, detail::erase<A...>(Arguments(args...)));
  }

  const std::string& group() const noexcept { return site_->group; }
  const std::string& name() const noexcept { return site_->name; }

 private:
  using Arguments = typename SampleCalls<R(A...)>::Arguments;
  static R run_body(void* self, A... args) {
    const auto& function = *static_cast<const Function*>(self);
    if (function.body_ == nullptr) detail::no_default(*function.site_);
    return function.body_(static_cast<A&&>(args)...);
  }
  static void take_samples(void (*samples)(void),
                           void (*take)(void* to, const detail::FunctionArgs&), void* to) {
    auto one = [&](const Arguments& args) { take(to, detail::erase<A...>(args)); };
    reinterpret_cast<Samples>(samples)(SampleCalls<R(A...)>(
        [](void* f, const Arguments& args) { (*static_cast<decltype(one)*>(f))(args); }, &one));
  }

  Body body_;
  detail::FunctionSite* site_;
};

// The backend that ran this thread's last call of a function, "original", or "". Calls of functions that no backend serves
// do not change it.
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

// Reasons of the program's verifiers. Their texts are numbered by address; YARD_REASON_REFUSED if there are too many.
struct YARD_API ProgramTexts {
  static int32_t number(const char* text) noexcept;
  static const yard_host_t* host() noexcept;
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

  static R run(void* given, A... a) {
    if constexpr (kTakesNext<F, R(A...)>) {
      const auto* next = static_cast<const yard_function_next_t*>(given);
      return static_cast<FunctionEntry*>(next->self)
          ->run_(Next<R(A...)>(next), static_cast<A&&>(a)...);
    } else {
      return static_cast<FunctionEntry*>(given)->run_(static_cast<A&&>(a)...);
    }
  }
  static int32_t verify(void* self, VerifyArg<A>... a, yard_verdict_t* to) {
    return VerifierOf<V, R(A...)>::ask(static_cast<FunctionEntry*>(self)->verify_, ProgramTexts(),
                                       a..., to);
  }
};

}  // namespace detail

// Adds to a change that `backend`, which it adds or which exists, implements the function. `run` and `verify` are
// functions, or objects that several threads may call at once; they are kept until the last call has ended. `run` has the
// signature of the function, perhaps after a yard::Next. Without a verifier every call is accepted. Another signature does
// not compile.
template <class R, class... A, class F, class V = detail::NoVerifier>
Changes& implement(Changes& changes, const Function<R(A...)>& f, const char* backend, F run,
                   V verify = {}, const ImplementationOptions& o = {}) {
  using S = R(A...);
  constexpr bool kVerified = !std::is_same_v<V, detail::NoVerifier>;
  constexpr bool kNext = detail::kTakesNext<F, S>;
  static_assert(kNext || detail::kImplements<F, S>,
                "an implementation must have the very signature of the function it implements");
  if constexpr (kVerified) {
    using Verifier = detail::VerifierOf<V, S>;
    static_assert(Verifier::kFits,
                  "a verifier must take the function's parameters (by const& or value), perhaps "
                  "after a const yard::FunctionQuery&");
    static_assert(!Verifier::kFits || Verifier::kGivesVerdict,
                  "a verifier must return yard::Verdict: yard::Accept() or yard::Reject(why)");
  }
  if constexpr (kNext || detail::kImplements<F, S>) {
    using Entry = detail::FunctionEntry<S, F, V>;
    std::shared_ptr<Entry> entry(new Entry{std::move(run), std::move(verify)});
    yard_function_t d{};
    d.size = sizeof d, d.signature = signature_of<S>(), d.self = entry.get();
    d.name = f.name().c_str(), d.group = f.group().c_str(), d.backend = backend;
    d.function = reinterpret_cast<void (*)(void)>(&Entry::run);
    if constexpr (kVerified) d.verify = reinterpret_cast<void (*)(void)>(&Entry::verify);
    d.priority = o.priority;
    if (kNext) d.flags |= YARD_FUNCTION_NEXT;
    if (o.lower_first) d.flags |= YARD_FUNCTION_LOWER_FIRST;
    if (o.fails_before_writing) d.flags |= YARD_FUNCTION_FAILS_BEFORE_WRITING;
    changes.add_function(d, std::move(entry));
  }
  return changes;
}

// One backend's implementation of a function.
struct FunctionProvider {
  std::string backend;
  int priority = 0;  // higher first
  bool on = false;   // calls outside of scopes and devices consider it
  std::string reason, detail;
  std::string breaker = "closed";  // or "open", "half_open": one call at a time tries it
  uint64_t calls = 0, failures = 0;
  bool takes_next = false;
  bool active = false;          // its backend is activated for the process
  std::vector<Device> devices;  // for these
};

struct FunctionInfo {
  std::string group, name;
  std::string signature;  // as declared; of an orphan, as provided
  Selection selection = Selection::kEnabled;
  bool declared = false;                    // false: an orphan, which is provided and not declared
  bool asked = false;                       // the group has been asked for its backends
  std::vector<FunctionProvider> providers;  // in the order of calls; those that are out last
  uint64_t original_calls = 0;              // while a backend served it
};

struct FunctionActivation {
  std::string backend;
  std::optional<Device> device;  // none: the process
  bool waiting = false;          // the backend provides no functions yet
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

  // A group may have several providers. One that is added after the group was loaded is asked by the next call. Errors are
  // in sources() and in the log.
  void add_provider(std::string group, FunctionSetup setup, std::string name = {});
  // Loads the group as the first call does, and asks providers again that failed. The first error; not_found: the group
  // has no functions and no plugin serves it; would_deadlock: called by code of a plugin that is being loaded.
  Status load(std::string_view group);

  // Functions with Selection::kActive use the backend from now on, all of them from one moment. Activating again makes it
  // the latest. Device index -1 stands for every device of that type. The backend must be allowed and enabled by policy,
  // available, and its device not lost. It must provide functions, unless plugins with functions have been found and not
  // been opened: then activation takes effect when one of them brings its functions. Activations persist when functions
  // are removed, unloaded and loaded again. While policy, also that of a thread's scope, disables or denies the backend or
  // is reference_only, and in a forked child that cannot use it, its functions are left out.
  Status activate(std::string_view backend) { return set_active(backend, {}, true); }
  Status activate(std::string_view backend, Device on) { return set_active(backend, on, true); }
  // An error if it is not active there.
  Status deactivate(std::string_view backend) { return set_active(backend, {}, false); }
  Status deactivate(std::string_view backend, Device on) { return set_active(backend, on, false); }
  std::vector<FunctionActivation> activations() const;  // in their order

  explicit Functions(functions::Service& service) noexcept : service_(&service) {}
  // For the library itself.
  functions::Service& service() const noexcept { return *service_; }

 private:
  Status set_active(std::string_view backend, std::optional<Device> device, bool active);
  functions::Service* service_;
};

// Of Runtime::shared().
YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});

}  // namespace yard

// YARD_DISPATCHED(name, "group") (parameters) { body };
// At namespace scope, also in a header. The result type is that of the body, or what follows `->`.
#define YARD_DISPATCHED(name, group) \
  inline const auto name = ::yard::detail::Declared{group, #name} << []
