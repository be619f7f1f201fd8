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
// copyable, passed by value), or where a commit group forbids it (yard/function.h); then, and for mistakes of the caller
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
#include <yard/registry.h>
#include <yard/status.h>
#include <yard/verdict.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// ---- Functions ----
// The dispatched functions of a process (function.h) and who provides them: listing, explaining, lazy groups.
//
// A group's backends may come late: from plugins whose manifest names the group, and from providers, which are
// asked at the first call of one of its functions. A provider that fails is reported and costs the others
// nothing; load() asks it again.
//
//   yard::add_provider("kda", [](yard::Changes& c) {
//     c.add_backend(fast);
//     yard::implement(c, chunk_attention, "fast", fast_chunk, fast_chunk_fits);
//     return yard::Status();
//   });

namespace yard {

namespace detail {
struct FunctionArgs;
struct FunctionSite;
}  // namespace detail
namespace provider {
class FunctionService;
}

// A reason that a verifier gave, with the figures it had the first time. The first sixteen of an implementation are
// kept apart and logged, further ones counted together.
struct FunctionRefusal {
  std::string reason;  // name in the catalogue; "own" for a verifier's own text
  std::string text;
  uint64_t count = 0;
};

// One backend's implementation of a function.
struct FunctionProvider {
  std::string backend;
  int priority = 0;  // as it counts: higher first
  bool on = false;   // calls ask it
  std::string reason, detail;
  std::string breaker = "closed";  // or "open", "half_open": one call at a time tries it
  uint64_t calls = 0, failures = 0;
  std::vector<FunctionRefusal> refusals;
};

struct FunctionInfo {
  std::string group, name;
  std::string signature;  // as declared; of an orphan, as provided
  std::string choice;     // the key it chooses by, where that is not its own
  bool declared = false;  // false: an orphan, provided and declared by nobody
  bool asked = false;     // called, or loaded for: the group has been asked for its backends
  std::vector<FunctionProvider>
      providers;  // in the order in which calls ask them, those that are out last
  uint64_t original_calls = 0;
};

// What became of one that a group's functions can come from.
struct FunctionSource {
  std::string group;
  std::string name;
  bool done = false;
  uint64_t attempts = 0;
  std::string error;  // of the last attempt; empty: none, or not tried yet
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
  std::string why;  // where something else than priority decided: the master switch, a commit group
  std::vector<FunctionCandidate> candidates;
  // A line for each.
  YARD_API std::string to_text() const;
};

// Fills in what the group gets. Nothing of it counts if the status is an error, or if it throws. One runs at a time.
// Must not wait for other threads that call functions or add providers.
using FunctionSetup = std::function<Status(Changes&)>;

// The functions as one runtime sees them; valid as long as that is. Any thread, at any time.
class Functions {
 public:
  // Declared and provided ones, by group and name. Loads nothing.
  YARD_API std::vector<FunctionInfo> list() const;
  // One of them: "kda/chunk_attention".
  YARD_API Result<FunctionInfo> find(std::string_view function) const;
  YARD_API std::vector<FunctionSource> sources() const;

  // Providers of one group add up. One that comes after the group was loaded is asked at once, in its turn; its error
  // is in sources() and in the log. One that comes from the code of a plugin that is being loaded may be asked by the
  // next call.
  YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});
  // What the first call does, and again what failed. The error is the first of those that failed; not_found: nobody
  // declares, provides or serves the group; would_deadlock: the code of a plugin that is being loaded cannot do so.
  YARD_API Status load(std::string_view group);

  // Every verifier that a call asks is checked: see Function::check_verifiers(). Slow. On from the start in debug
  // builds of the library, and where YARD_CHECK_VERIFIERS says so.
  YARD_API void check_verifiers(bool on);

  explicit Functions(provider::FunctionService& service) noexcept : service_(&service) {}
  // For the library itself.
  provider::FunctionService& service() const noexcept { return *service_; }

 private:
  provider::FunctionService* service_;
};

// On Runtime::shared().
YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});

namespace detail {

YARD_API FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args);
YARD_API std::vector<std::string> check_function(FunctionSite& site, const FunctionArgs& args);
// The number of a text, for ever; YARD_REASON_REFUSED where there are too many.
YARD_API int32_t intern_reason(const char* text) noexcept;
YARD_API const yard_host_t* function_host() noexcept;

}  // namespace detail
}  // namespace yard

namespace yard {

struct FunctionOptions {
  // Functions with one key choose together inside a commit group, as forward and backward do. Null: by itself.
  const char* choice = nullptr;
  // Whoever runs it only writes results and reads none of them: after a failure another can start over. Without it
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
  // everybody's verifiers can be checked: see yard/verdict.h and yard::verify().
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
  // Asks the verifiers about a call like this, twice and on two other threads: they must give the same answer. What
  // is wrong, a line each. Debug builds check this on every call, others after Functions::check_verifiers(true).
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

// ---- Commit ----
// Commit groups: calls that choose together. What was chosen once inside a group stays chosen in it.
//
//   yard::CommitGroup forward;
//   y = attention(q, k, v);                                // chooses
//   ...
//   yard::CommitGroup backward(forward.decisions());       // perhaps later, perhaps on another thread
//   y = attention(q, k, v);                                // the same again, or an error: never another
//   g = attention_grad(dy);                                // the same backend, where both are functions with one key
//
//   yard::CommitGroup step(yard::CommitKind::kCollective); // every rank runs the same kernels, or none
//   all_reduce_like(x);
//   compare_with_other_ranks(step.digest());
//
// A choice point is an op with the dtypes and shapes of its inputs and the flags of the call, whatever its
// scalars; or a dispatched function, or the key that several functions share. Its first call inside a group
// chooses as calls do; later ones take what it chose, whatever health says of it since. What was chosen and cannot
// be had any more is an error. A kernel that fails is replaced only if its call was the one that chose, nobody else
// has used the choice since, and the group is no collective one. When all fail that call has chosen nothing.

namespace yard {

namespace detail {
class Commit;
struct ThreadHead;
}  // namespace detail

enum class CommitKind {
  kPlain,       // no fallback once something is chosen
  kCollective,  // no fallback at all: a call goes to the first that accepts it, or fails
};

struct CommitDecision {
  std::string point;   // "rms_norm(f32[4,8], f32[8])@cpu", "kda/chunk_attention", or a shared key
  std::string chosen;  // a kernel's id, or a backend's name; "original": the function's own body

  bool operator==(const CommitDecision&) const = default;
};

// The calls of this thread are in the group as long as this lives. Groups nest: a choice made or used inside an inner
// group holds in the outer ones, too, and what an outer one has chosen is not chosen again. One inside a
// collective group is collective. Other threads see nothing of it: give them decisions(). Ends on the thread
// that made it, the last one first. Allocates; so does the first call of a choice point.
class [[nodiscard]] CommitGroup {
 public:
  explicit CommitGroup(CommitKind kind = CommitKind::kPlain) : CommitGroup({}, kind) {}
  // Begins with what was chosen elsewhere. Where an outer group has chosen otherwise, that stands.
  YARD_API explicit CommitGroup(const std::vector<CommitDecision>& decisions,
                                CommitKind kind = CommitKind::kPlain);
  YARD_API ~CommitGroup();
  CommitGroup(const CommitGroup&) = delete;
  CommitGroup& operator=(const CommitGroup&) = delete;
  static void* operator new(size_t) = delete;  // a block's, or part of something that is
  static void* operator new[](size_t) = delete;

  YARD_API CommitKind kind() const noexcept;
  // What was chosen or used inside it, in the order of the first use.
  YARD_API std::vector<CommitDecision> decisions() const;
  // 64 hexadecimal digits over decisions(): equal exactly when they are, to compare with other processes.
  YARD_API std::string digest() const;

 private:
  detail::ThreadHead* thread_;
  std::unique_ptr<detail::Commit> commit_;
};

}  // namespace yard
