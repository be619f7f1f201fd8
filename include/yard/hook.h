// SPDX-License-Identifier: Apache-2.0
// Hooks: named functions of a program that the active backend may replace.
//
//   inline yard::Hook<std::optional<Value>(Builder&, Value)> atomic_add{"atomic_add"};
//
//   return yard::call_or(atomic_add, [&] { return emit_default(builder, value); }, builder, value);
//   auto kernel = yard::choose(matmul_kernel, default_kernel);   // a function that follows activation
//
// Whether a hook is engaged and what it returns are two things: zero, false, empty and null come back as they are.
// The default is evaluated only if no hook is engaged. A hook may be used at any time, also before anything is
// activated or registered; then it means the default. Backends provide hooks by a HookSet (hooks.h) or a plugin
// (plugin_hooks.hpp), and are activated for the process, a device or a block of code.
//
// Any thread may call a hook at any time; implementations are called by several at once. A call holds what it runs:
// switching and unloading wait for nobody, and no library is closed that a hook is running in. A call costs a few
// nanoseconds, allocates nothing and takes no lock. The first one looks for plugins that serve the hook. Exceptions
// of implementations and defaults reach the caller.
#pragma once

#include <yard/detail/hook.h>
#include <yard/hook_entry.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace yard {

namespace detail {

// The part of a hook that knows no types.
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
  // Whether a call of this thread would run a hook now.
  bool engaged() const noexcept {
    const HookSite* s = site();
    if (s == nullptr || !may_engage(*s)) return false;
    ThreadHead& thread = t_thread != nullptr ? *t_thread : register_thread();
    Guard guard(thread);
    HookPlace place;
    return find_hook(*s, thread, guard, process_link(*s, thread, guard), place);
  }
  // Null where the hook has none yet: not engaged.
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
  // Out of the way of hooks that run alone.
  template <class... B>
  [[gnu::noinline]] static R run(const HookPlace& place, Function fallback, void* context,
                                 B&&... b) {
    const HookLink& link = *place.link;
    if (!link.takes_next) return run_one(link, link.self, std::forward<B>(b)...);
    Rest r{place, fallback, context};
    yard_hook_next_t next{sizeof next, 0, link.self, &r, reinterpret_cast<void (*)(void)>(&rest)};
    return run_one(link, &next, std::forward<B>(b)...);
  }
  // Defaults: one that knows its arguments, and one that is given them.
  template <class F>
  static R run_closed(void* f, A...) {
    return static_cast<R>((*static_cast<F*>(f))());
  }
  template <class F>
  static R run_open(void* f, A... a) {
    return static_cast<R>((*static_cast<F*>(f))(std::forward<A>(a)...));
  }
};

template <class T>
void* address_of(T& t) noexcept {
  return const_cast<void*>(static_cast<const volatile void*>(std::addressof(t)));
}

}  // namespace detail

template <class Signature>
class Hook;
template <class R, class... A>
class Hook<R(A...)> : public detail::HookBase {
 public:
  // Of Runtime::shared(). Declares it: it is listed, and what provides it is held against its signature.
  explicit Hook(const char* name) noexcept : HookBase(name, signature_of<R(A...)>(), nullptr) {}
  // Of another runtime, which must outlive it.
  Hook(Runtime& runtime, const char* name) noexcept
      : HookBase(name, signature_of<R(A...)>(), &runtime) {}
};

// Runs the hook, or `fallback()` if none is engaged. Arguments are touched only if a hook runs. At the end of a
// chain whose implementations ask for the next one `fallback()` runs as well, and sees the caller's variables:
// what the call has moved into the hook is gone.
template <class R, class... A, class F, class... B>
R call_or(const Hook<R(A...)>& hook, F&& fallback, B&&... args) {
  static_assert(std::is_invocable_r_v<R, F&>,
                "the default of a hook takes nothing and returns what the hook does");
  static_assert(std::is_invocable_v<R (*)(A...), B...>,
                "these are not the arguments of the hook's signature");
  using Call = detail::HookCall<R(A...)>;
  const detail::HookSite* site = hook.site();
  if (site != nullptr && detail::may_engage(*site)) {
    detail::ThreadHead& thread =
        detail::t_thread != nullptr ? *detail::t_thread : detail::register_thread();
    detail::Guard guard(thread);
    const detail::HookLink* link = detail::process_link(*site, thread, guard);
    if (link != nullptr && !link->takes_next) [[likely]]
      return Call::run_one(*link, link->self, std::forward<B>(args)...);
    detail::HookPlace place;
    if (detail::find_hook(*site, thread, guard, link, place))
      return Call::run(place, &Call::template run_closed<std::remove_reference_t<F>>,
                       detail::address_of(fallback), std::forward<B>(args)...);
  }
  return static_cast<R>(fallback());
}

// A definition: calls the hook while one is engaged and `definition` otherwise, each time again. Copies of it are
// independent; the hook must outlive them.
template <class Signature, class F>
class Chosen;
template <class R, class... A, class F>
class Chosen<R(A...), F> {
 public:
  Chosen(const Hook<R(A...)>& hook, F definition)
      : hook_(&hook), definition_(std::move(definition)) {}

  template <class... B>
  R operator()(B&&... args) const {
    static_assert(std::is_invocable_v<R (*)(A...), B...>,
                  "these are not the arguments of the hook's signature");
    using Call = detail::HookCall<R(A...)>;
    const detail::HookSite* site = hook_->site();
    if (site != nullptr && detail::may_engage(*site)) {
      detail::ThreadHead& thread =
          detail::t_thread != nullptr ? *detail::t_thread : detail::register_thread();
      detail::Guard guard(thread);
      const detail::HookLink* link = detail::process_link(*site, thread, guard);
      if (link != nullptr && !link->takes_next) [[likely]]
        return Call::run_one(*link, link->self, std::forward<B>(args)...);
      detail::HookPlace place;
      if (detail::find_hook(*site, thread, guard, link, place))
        return Call::run(place, &Call::template run_open<const F>, detail::address_of(definition_),
                         std::forward<B>(args)...);
    }
    return Call::template run_open<const F>(detail::address_of(definition_),
                                            std::forward<B>(args)...);
  }
  bool engaged() const noexcept { return hook_->engaged(); }

 private:
  const Hook<R(A...)>* hook_;
  F definition_;
};

template <class R, class... A, class F>
Chosen<R(A...), std::decay_t<F>> choose(const Hook<R(A...)>& hook, F&& definition) {
  static_assert(std::is_invocable_r_v<R, const std::decay_t<F>&, A...>,
                "the default definition has another signature than the hook");
  return {hook, std::forward<F>(definition)};
}
// It would outlive the hook.
template <class R, class... A, class F>
void choose(const Hook<R(A...)>&& hook, F&& definition) = delete;

}  // namespace yard
