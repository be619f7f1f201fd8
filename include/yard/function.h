// SPDX-License-Identifier: Apache-2.0
// Backends can implement functions of a program (docs/guides/functions.md).
//
//   YARD_DISPATCHED(attention, "kda") (const Args& a) -> Tensor { ... };  // the original
//
//   yard::add_provider("kda", [](yard::Changes& c) {  // runs before the first call of the group
//     c.add_backend(fast);
//     yard::implement(c, attention, "fast", fast_attention, fits, {.priority = 10});
//     return yard::Status();
//   });
//   Tensor t = attention(args);
//
// Selection::kEnabled considers every enabled backend by priority. The first whose verifier
// (verdict.h) accepts the call runs, else the original. After an exception the next one runs if the
// inputs are intact. Failures open breakers, with "group/name" as the op.
//
// Selection::kActive considers only activated backends, first of the thread's scopes, then of its
// device, then of the process. An implementation that takes a yard::Next may call the next one, or
// the default if it is the last. Exceptions reach the caller.
//
// Functions belong to Runtime::shared(). Any thread may call anything here. From a thread's second
// call on, calls take no lock and allocate nothing. All functions of a backend switch at once.
#pragma once

#include <yard/detail/function.h>
#include <yard/registry.h>

namespace yard {

namespace functions {
class Service;
}

struct FunctionOptions {
  bool repeatable = false;  // no implementation reads what it writes, so another can start over
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
  std::string why;       // names the master switch if that decided
  std::vector<FunctionCandidate> candidates;
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
  // Names consist of letters, digits, '_', '.' and '-'. Calls from `samples` check the verifiers of
  // backends, and compare results that are numbers or ranges of numbers with the body's results.
  Function(const char* group, const char* name, Body body, FunctionOptions o = {},
           Samples samples = nullptr) noexcept
      : body_(body),
        samples_{reinterpret_cast<void (*)(void)>(samples), &make_samples,
                 body != nullptr ? detail::sample_runner<R, A...>() : nullptr,
                 reinterpret_cast<void (*)(void)>(&run_body), this},
        site_(detail::declare_function(group, name, signature_of<R(A...)>(), o.selection,
                                       o.repeatable, samples != nullptr ? &samples_ : nullptr)) {}
  // Makes a function without a body. Each call gives the default to call_or().
  Function(const char* group, const char* name,
           FunctionOptions o = {.selection = Selection::kActive}) noexcept
      : Function(group, name, Body{nullptr}, o) {}
  ~Function() { detail::undeclare_function(site_); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  // Throws yard::Error if no backend runs the call and the function has no body.
  YARD_MODE_TAG R operator()(A... args) const {
    if (detail::is_quiet(*site_) && body_ != nullptr) return body_(static_cast<A&&>(args)...);
    return detail::call_function<R, A...>(*site_, {&run_body, const_cast<Function*>(this)},
                                          args...);
  }
  // Runs `fallback()` if no backend does, or as the last Next. Arguments may have been moved from.
  template <class F>
  YARD_MODE_TAG R call_or(F&& fallback, A... args) const {
    static_assert(std::is_invocable_r_v<R, F&>,
                  "the default of a function takes nothing and returns what the function does");
    if (detail::is_quiet(*site_)) return static_cast<R>(fallback());
    using Kept = std::remove_reference_t<F>;
    const auto run = [](void* f, A...) -> R { return static_cast<R>((*static_cast<Kept*>(f))()); };
    void* const context = const_cast<void*>(static_cast<const void*>(std::addressof(fallback)));
    return detail::call_function<R, A...>(*site_, {+run, context}, args...);
  }

  // The backend of this thread's last call, "original", or "". Threads remember about 60 functions.
  const char* last_selected() const noexcept { return detail::last_selected(site_); }
  // Asks all verifiers about a call, and runs no implementation.
  FunctionExplanation explain(const std::remove_reference_t<A>&... args) const {
    return detail::explain_function(*site_, detail::erase<A...>(Arguments(args...)));
  }

  const std::string& group() const noexcept { return site_->group; }
  const std::string& name() const noexcept { return site_->name; }

 private:
  using Arguments = typename SampleCalls<R(A...)>::Arguments;
  YARD_MODE_TAG static R run_body(void* self, A... args) {
    const auto& function = *static_cast<const Function*>(self);
    if (function.body_ == nullptr) detail::no_default(*function.site_);
    return function.body_(static_cast<A&&>(args)...);
  }
  YARD_MODE_TAG static void make_samples(void (*function)(void),
                                         void (*take)(void* to, const detail::FunctionArgs&),
                                         void* to) {
    auto one = [&](const Arguments& args) { take(to, detail::erase<A...>(args)); };
    reinterpret_cast<Samples>(function)(SampleCalls<R(A...)>(
        [](void* f, const Arguments& args) { (*static_cast<decltype(one)*>(f))(args); }, &one));
  }

  Body body_;
  detail::FunctionSamples samples_;
  detail::FunctionSite* site_;
};

// Returns the backend of this thread's last call of any function that backends serve.
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

// Numbers texts by their addresses. Returns YARD_REASON_REFUSED if there are too many.
struct YARD_API ProgramTexts {
  static int32_t number(const char* text) noexcept;
  static const yard_host_t* host() noexcept;
};
}  // namespace detail

struct ImplementationOptions {
  int priority = 0;                   // -1000 to 1000, higher first
  bool lower_first = false;           // a lower priority comes first, for ports of other libraries
  bool fails_before_writing = false;  // when it throws, it has changed nothing
};

// `run` has f's signature, perhaps after a yard::Next. Several threads may call `run` and `verify`,
// which are kept until the last call has ended. Without a verifier all calls are accepted.
template <class R, class... A, class F, class V = detail::NoVerifier>
Changes& implement(Changes& changes, const Function<R(A...)>& f, const char* backend, F run,
                   V verify = {}, const ImplementationOptions& o = {}) {
  using Entry = detail::FunctionEntry<R(A...), F, V, detail::ProgramTexts>;
  std::shared_ptr<Entry> entry(new Entry{std::move(run), std::move(verify), {}});
  yard_function_t d{};
  d.size = sizeof d, d.priority = o.priority;
  d.name = f.name().c_str(), d.group = f.group().c_str(), d.backend = backend;
  entry->describe(d);
  if (o.lower_first) d.flags |= YARD_FUNCTION_LOWER_FIRST;
  if (o.fails_before_writing) d.flags |= YARD_FUNCTION_FAILS_BEFORE_WRITING;
  changes.add_function(d, std::move(entry));
  return changes;
}

struct FunctionProvider {  // one backend's implementation of a function
  std::string backend;
  int priority = 0;  // higher first
  bool on = false;   // calls outside of scopes and devices consider it
  std::string reason, detail;
  std::string breaker = "closed";  // or "open", "half_open"
  uint64_t calls = 0, failures = 0;
  bool takes_next = false;
  bool active = false;          // its backend is activated for the process
  std::vector<Device> devices;  // that its backend is activated for
};

struct FunctionInfo {
  std::string group, name;
  std::string signature;  // as declared, else as provided
  Selection selection = Selection::kEnabled;
  bool declared = false;                    // false if only backends provide it
  bool asked = false;                       // the group has been asked for its backends
  std::vector<FunctionProvider> providers;  // in the order of calls, then the unusable ones
  uint64_t original_calls = 0;              // while a backend served the function
};

struct FunctionActivation {
  std::string backend;
  std::optional<Device> device;  // empty for the process
  bool waiting = false;          // the backend provides no functions yet
  bool operator==(const FunctionActivation&) const = default;
};

struct FunctionSource {
  std::string group, name;
  bool done = false;
  uint64_t attempts = 0;
  std::string error;  // of the last attempt
};

// Adds the backends and implementations of a group, or none after an error or exception. One setup
// runs at a time. It must not wait for threads that call functions or add providers.
using FunctionSetup = std::function<Status(Changes&)>;

// The functions of one runtime, valid as long as the runtime.
class YARD_API Functions {
 public:
  std::vector<FunctionInfo> list() const;                      // by group and name; loads nothing
  Result<FunctionInfo> find(std::string_view function) const;  // "kda/chunk_attention"
  std::vector<FunctionSource> sources() const;

  // The next call of a function of the group asks the provider. See sources() for its errors.
  void add_provider(std::string group, FunctionSetup setup, std::string name = {});
  // Loads the group as the first call does, and asks failed providers again. Returns the first
  // error: not_found for an unknown group, would_deadlock in code of a plugin that is being loaded.
  Status load(std::string_view group);

  // Activates the backend, as the latest one, for functions with Selection::kActive. Index -1 means
  // all devices of a type. Fails unless it is usable and provides functions or a plugin may.
  Status activate(std::string_view backend) { return set_active(backend, {}, true); }
  Status activate(std::string_view backend, Device on) { return set_active(backend, on, true); }
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

YARD_API void add_provider(std::string group, FunctionSetup setup, std::string name = {});

}  // namespace yard

#define YARD_DISPATCHED(name, group) \
  inline const auto name = ::yard::detail::Declared{group, #name} << []
