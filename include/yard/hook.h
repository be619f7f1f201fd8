// SPDX-License-Identifier: Apache-2.0
// Hooks: named functions of a program that active backends may replace.
//
//   inline yard::Hook<std::optional<Value>(Builder&, Value)> atomic_add{"atomic_add"};      // declares it
//   return yard::call_or(atomic_add, [&] { return emit_default(b, v); }, b, v);             // calls it, or the default
//   auto kernel = yard::choose(matmul_kernel, default_kernel);   // a function object that follows activation
//
//   yard::HookSet acme("acme");
//   acme.add(atomic_add, [](Builder& b, Value v) { return b.emit_cas_loop(v); });
//   runtime.hooks().add(acme).or_throw();                  // registered, and not active yet
//   runtime.hooks().activate("acme").or_throw();           // for the process
//   runtime.hooks().activate("acme", {2, 0}).or_throw();   // for threads that are on that device
//   const yard::HookScope acme_only = runtime.hooks().scope("acme").value();
//   yard::ScopedHooks in(acme_only);                       // for this thread until the end of the block
//   yard::ScopedDevice on({2, 0});                         // this thread works for that device
//
// A hook may be used at any time, also before anything is registered or active: then the default runs. The default is
// evaluated only if the hook is not engaged; any result of a hook, also zero, false, empty or null, is returned as it
// is. Backends provide hooks by a HookSet or a plugin (yard/plugin_hooks.hpp).
//
// A call runs the first of: the scopes that the thread is in, the innermost first; what is active for its device; what is
// active for the process. Within the last two, higher priority comes first, then what was activated later. Only that one
// runs, unless it takes a yard::Next and calls the next in the chain, at last the default. A backend is in a chain once.
//
// Any thread may call a hook at any time; implementations are called by several at once. A call keeps what it runs loaded;
// activation and unloading do not wait for calls. A call costs a few nanoseconds, allocates nothing and takes no lock; the
// first one loads plugins that serve the hook. Exceptions of implementations and defaults reach the caller.
#pragma once

#include <yard/detail/hook.h>
#include <yard/provide.h>
#include <yard/registry.h>
#include <yard/tensor.h>

namespace yard {

namespace provider {
class HookService;
}

namespace detail {

// The part of a hook that does not depend on its signature.
class HookBase {
 public:
  HookBase(const char* name, const char* signature, Runtime* runtime) noexcept
      : declaration_(declare_hook(name, signature)), runtime_(runtime) {}
  ~HookBase() {
    if (declaration_ != nullptr) undeclare_hook(declaration_);
  }
  HookBase(const HookBase&) = delete;
  HookBase& operator=(const HookBase&) = delete;

  const char* name() const noexcept { return name_of(declaration_); }
  // Whether a call of this thread would run a hook now. False without memory for the thread's first use of the library.
  bool engaged() const noexcept {
    const HookSite* s = site();
    if (s == nullptr || !may_engage(*s)) return false;
    ThreadHead* const thread = t_thread != nullptr ? t_thread : try_register_thread();
    if (thread == nullptr) return false;
    Guard guard(*thread);
    HookPlace place;
    return find_hook(*s, *thread, guard, process_link(*s, *thread, guard), place);
  }
  // Null: none yet, so the hook is not engaged.
  HookSite* site() const noexcept {
    HookSite* s = site_.load(kFollow);
    return s != nullptr ? s : attach();
  }

 private:
  [[gnu::noinline, gnu::cold]] HookSite* attach() const noexcept {
    if (declaration_ == nullptr) return nullptr;  // used before its own initialisation
    bool again = false;
    HookSite* s = attach_hook(declaration_, runtime_, again);
    if (!again) site_.store(s, std::memory_order_release);
    return s;
  }
  const HookDeclaration* declaration_;
  Runtime* runtime_;
  mutable std::atomic<HookSite*> site_{nullptr};
};

template <class T>
void* address_of(T& t) noexcept {
  return const_cast<void*>(static_cast<const volatile void*>(std::addressof(t)));
}

// Running a chain. The default is erased to a function of the hook's own arguments.
template <class S>
struct HookCall;
template <class R, class... A>
struct HookCall<R(A...)> {
  using Function = R (*)(void*, A...);
  struct Rest {
    HookPlace place;
    Function fallback;
    void* context;
  };
  // What Next calls.
  static R rest(void* at, A... a) {
    const Rest& r = *static_cast<const Rest*>(at);
    HookPlace place = r.place;
    if (next_place(place)) return run(place, r.fallback, r.context, std::forward<A>(a)...);
    return r.fallback(r.context, std::forward<A>(a)...);
  }
  template <class... B>
  static R run_one(const HookLink& link, void* first, B&&... b) {
    return reinterpret_cast<Function>(link.function)(first, std::forward<B>(b)...);
  }
  // Not inlined: most hooks run alone.
  template <class... B>
  [[gnu::noinline]] static R run(const HookPlace& place, Function fallback, void* context,
                                 B&&... b) {
    const HookLink& link = *place.link;
    if (!link.takes_next) return run_one(link, link.self, std::forward<B>(b)...);
    Rest r{place, fallback, context};
    yard_hook_next_t next{sizeof next, 0, link.self, &r, reinterpret_cast<void (*)(void)>(&rest)};
    return run_one(link, &next, std::forward<B>(b)...);
  }
  // Runs the hook if it is engaged, with `fallback(context, ...)` at the end of its chain; else `otherwise()`.
  template <class Otherwise, class... B>
  [[gnu::always_inline]] static inline R call(const HookBase& hook, Function fallback,
                                              void* context, const Otherwise& otherwise,
                                              B&&... args) {
    static_assert(std::is_invocable_v<R (*)(A...), B...>,
                  "these are not the arguments of the hook's signature");
    const HookSite* site = hook.site();
    if (site != nullptr && may_engage(*site)) {
      ThreadHead& thread = t_thread != nullptr ? *t_thread : register_thread();
      Guard guard(thread, *site);
      const HookLink* link = process_link(*site, thread, guard);
      if (link != nullptr && !link->takes_next) [[likely]]
        return run_one(*link, link->self, std::forward<B>(args)...);
      HookPlace place;
      if (find_hook(*site, thread, guard, link, place))
        return run(place, fallback, context, std::forward<B>(args)...);
    }
    return otherwise();
  }
  // A default without parameters; one with those of the hook, also a program's implementation; one that takes a Next.
  template <class F>
  static R run_closed(void* f, A...) {
    return static_cast<R>((*static_cast<F*>(f))());
  }
  template <class F>
  static R run_open(void* f, A... a) {
    return static_cast<R>((*static_cast<F*>(f))(std::forward<A>(a)...));
  }
  template <class F>
  static R run_with_next(void* given, A... a) {
    const auto* next = static_cast<const yard_hook_next_t*>(given);
    return static_cast<R>(
        (*static_cast<F*>(next->self))(Next<R(A...)>(next), std::forward<A>(a)...));
  }
};

}  // namespace detail

template <class Signature>
class Hook;
template <class R, class... A>
class Hook<R(A...)> : public detail::HookBase {
 public:
  // Of Runtime::shared(). Declares the hook: it is listed, and the signatures of its providers are compared.
  explicit Hook(const char* name) noexcept : HookBase(name, signature_of<R(A...)>(), nullptr) {}
  // Of another runtime, which must outlive it.
  Hook(Runtime& runtime, const char* name) noexcept
      : HookBase(name, signature_of<R(A...)>(), &runtime) {}
};

// Runs the hook, or `fallback()` if it is not engaged. Arguments are used only if the hook runs. If implementations
// call the next in the chain, `fallback()` may run at its end, and sees the caller's variables, from which the call may
// have moved.
template <class R, class... A, class F, class... B>
R call_or(const Hook<R(A...)>& hook, F&& fallback, B&&... args) {
  static_assert(std::is_invocable_r_v<R, F&>,
                "the default of a hook takes nothing and returns what the hook does");
  using Call = detail::HookCall<R(A...)>;
  return Call::call(
      hook, &Call::template run_closed<std::remove_reference_t<F>>, detail::address_of(fallback),
      [&]() -> R { return static_cast<R>(fallback()); }, std::forward<B>(args)...);
}

namespace detail {
template <class Signature, class F>
class Chosen;
template <class R, class... A, class F>
class Chosen<R(A...), F> {
 public:
  Chosen(const Hook<R(A...)>& hook, F definition)
      : hook_(&hook), definition_(std::move(definition)) {}

  template <class... B>
  R operator()(B&&... args) const {
    using Call = HookCall<R(A...)>;
    constexpr auto run = &Call::template run_open<const F>;
    void* const definition = address_of(definition_);
    return Call::call(
        *hook_, run, definition, [&]() -> R { return run(definition, std::forward<B>(args)...); },
        std::forward<B>(args)...);
  }
  bool engaged() const noexcept { return hook_->engaged(); }

 private:
  const Hook<R(A...)>* hook_;
  F definition_;
};
}  // namespace detail

// A function object: calls the hook if it is engaged, else `definition`, decided for each call; engaged() tells which. Copies
// are independent; the hook must outlive them.
template <class R, class... A, class F>
detail::Chosen<R(A...), std::decay_t<F>> choose(const Hook<R(A...)>& hook, F&& definition) {
  static_assert(std::is_invocable_r_v<R, const std::decay_t<F>&, A...>,
                "the default definition has another signature than the hook");
  return {hook, std::forward<F>(definition)};
}
// It would outlive the hook.
template <class R, class... A, class F>
void choose(const Hook<R(A...)>&& hook, F&& definition) = delete;

// The hooks of one backend. A value; implementations live until the last call that runs them has ended.
class HookSet {
 public:
  explicit HookSet(std::string backend) : backend_(std::move(backend)) {}

  // `f` takes the hook's arguments, or a Next<Signature> and those. Higher priority comes first: -1000 to 1000.
  template <class R, class... A, class F>
  HookSet& add(const Hook<R(A...)>& hook, F f, int priority = 0) {
    return add<R(A...)>(std::string(hook.name()), std::move(f), priority);
  }
  // By name, for a hook that is declared elsewhere or later.
  template <class Signature, class F>
  HookSet& add(std::string name, F f, int priority = 0) {
    constexpr bool kAlone = detail::kImplements<F, Signature>;
    static_assert(kAlone || detail::kImplementsWithNext<F, Signature>,
                  "the implementation does not fit the hook's signature");
    using Call = detail::HookCall<Signature>;
    auto kept = std::make_shared<F>(std::move(f));
    yard_hook_t d{};
    d.size = sizeof d, d.signature = signature_of<Signature>();
    d.priority = priority, d.self = kept.get(), d.flags = kAlone ? 0 : YARD_HOOK_NEXT;
    if constexpr (kAlone)
      d.function = reinterpret_cast<void (*)(void)>(&Call::template run_open<const F>);
    else
      d.function = reinterpret_cast<void (*)(void)>(&Call::template run_with_next<const F>);
    items_.push_back({d, std::move(name), std::move(kept)});
    return *this;
  }

  const std::string& backend() const noexcept { return backend_; }

 private:
  friend class Hooks;
  struct Item {
    yard_hook_t d;
    std::string name;
    std::shared_ptr<void> keep;
  };
  std::string backend_;
  std::vector<Item> items_;
};

// For ScopedHooks; see Hooks::scope(). A value.
class HookScope {
 private:
  friend class Hooks;
  friend class ScopedHooks;
  HookScope(uint32_t number, uint64_t table) noexcept : number_(number), table_(table) {}
  uint32_t number_;
  uint64_t table_;  // of which runtime
};

namespace detail {
// On the thread's list of frames as long as it lives. Must end on the thread that made it, the last one first.
class [[nodiscard]] ScopedFrame {
 public:
  ScopedFrame(const ScopedFrame&) = delete;
  ScopedFrame& operator=(const ScopedFrame&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

 protected:
  ScopedFrame(uint32_t backend, yard_device_t device, uint64_t table)
      : thread_(t_thread != nullptr ? *t_thread : register_thread()),
        frame_{thread_.hooks, backend, device, table} {
    thread_.hooks = &frame_;
  }
  ~ScopedFrame() { thread_.hooks = frame_.outer; }

 private:
  ThreadHead& thread_;
  HookFrame frame_;
};
}  // namespace detail

// The thread is in the scope: the backend's hooks come first. Loops of the host (parallel_for) inherit it.
class ScopedHooks : public detail::ScopedFrame {
 public:
  explicit ScopedHooks(const HookScope& scope) : ScopedFrame(scope.number_, {}, scope.table_) {}
};
// The thread works for the device: hooks that are active for the device are engaged.
class ScopedDevice : public detail::ScopedFrame {
 public:
  explicit ScopedDevice(Device device) : ScopedFrame(0, {device.type, device.index}, 0) {}
};

struct HookProvider {
  std::string backend;
  int priority = 0;
  bool takes_next = false;
  bool definition = false;
  bool active = false;          // for the process
  std::vector<Device> devices;  // for these
  std::string off;              // why policy or process rule it out; empty: they do not
};

struct HookInfo {
  std::string name, signature;
  bool declared = false;
  bool engaged = false;                 // for the process
  std::vector<HookProvider> providers;  // as the process calls them; then those not active
  std::string problem;                  // empty: none
};

struct HookActivation {
  std::string backend;
  std::optional<Device> device;  // none: the process
  bool waiting = false;          // the backend provides no hooks yet
};

// All hooks of a runtime at one moment.
struct HookListing {
  std::vector<HookInfo> hooks;              // by name and signature
  std::vector<HookActivation> activations;  // in their order
  // The declared one, where several signatures share the name; null: none. Valid as long as the listing.
  YARD_API const HookInfo* find(std::string_view name) const& noexcept;
  const HookInfo* find(std::string_view name) const&& = delete;
  // Names that are provided and not declared; that are declared and not provided.
  YARD_API std::vector<std::string> undeclared() const;
  YARD_API std::vector<std::string> unprovided() const;
};

// The hooks of one runtime; valid as long as the runtime. Any thread, at any time.
class YARD_API Hooks {
 public:
  // All or nothing. Not engaged before the backend is active. A backend may have several sets.
  Status add(const HookSet& set);
  // Removes the backend's hooks and its dispatched functions. The ticket is done when no call runs them any more.
  Result<Ticket> remove(std::string_view backend);

  // All hooks of the backend are engaged at one moment. Activating again makes it the latest. Device index -1: every
  // device of that type. The backend must be allowed and enabled by policy, available, and its device not lost. It
  // must provide hooks, unless plugins with hooks have been found and not been opened: then activation takes effect
  // when one of them brings its hooks. Activations persist when hooks are removed, unloaded and loaded again. While
  // policy, also that of a thread's scope, disables or denies the backend or is reference_only, and in a forked child that
  // cannot use it, its hooks are left out.
  Status activate(std::string_view backend);
  Status activate(std::string_view backend, Device device);
  // An error if it is not active there.
  Status deactivate(std::string_view backend);
  Status deactivate(std::string_view backend, Device device);
  // For ScopedHooks; fails as activate() does. Without effect once the backend has been removed.
  Result<HookScope> scope(std::string_view backend) const;

  HookListing list() const;

  // For the library itself.
  provider::HookService& service() const noexcept { return *service_; }

 private:
  friend class Runtime;
  explicit Hooks(provider::HookService& service) noexcept : service_(&service) {}
  provider::HookService* service_;
};

}  // namespace yard
