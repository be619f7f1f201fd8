// SPDX-License-Identifier: Apache-2.0
// The inline part of a call of a function (yard/function.h). Not for direct use.
//
// The tables of all functions belong to the snapshot of the shared runtime, so that one store switches them together. A call
// holds the snapshot with its hazard slot while it asks verifiers, and then only the implementation that runs: a long call
// keeps nothing else from being freed. A site whose function no backend serves is `quiet`: its calls read nothing else.
#pragma once

#include <yard/detail/guard.h>
#include <yard/tensor.h>
#include <yard/verdict.h>

namespace yard {

namespace dispatch {
class Snapshot;
}

// Which backends a function considers.
enum class Selection : uint8_t {
  kEnabled,  // every enabled backend, the highest priority first; the first whose verifier accepts runs
  kActive,  // only backends that are activated; exceptions of implementations reach the caller
};

namespace detail {

// What a call reads of an implementation.
struct FunctionRow {
  void (*run)(void) = nullptr;     // R (*)(void* self, A...)
  void (*verify)(void) = nullptr;  // see VerifyFunction; null: accepts everything
  void* self = nullptr;
  const char* backend = nullptr;  // never freed
  uint32_t succeeded = 0;         // counter
  bool takes_next = false;        // `run` gets a yard_function_next_t* instead of `self`
};

struct FunctionTable {
  const FunctionRow* const* rows = nullptr;  // in the order in which they are asked
  uint32_t count = 0;
  uint32_t original = 0;  // counter
  bool plain = true;      // false if a breaker is half-open: calls take the slow path
};
// What calls read of a snapshot, of which it is the first base.
struct FunctionTables {
  const FunctionTable* const* tables =
      nullptr;  // by FunctionSite::index; null where there is none yet
  uint32_t count = 0;
};
// The current snapshot of the shared runtime. Null until the first call of a function.
extern YARD_API std::atomic<const std::atomic<const dispatch::Snapshot*>*> g_snapshot;

struct FunctionArgs;
// Calls `samples`, cast back to its type, which passes the arguments of each of its calls to take(to, arguments).
using TakeSamples = void (*)(void (*samples)(void), void (*take)(void* to, const FunctionArgs&),
                             void* to);

// A declared function: one per group, name, signature and options. Never freed.
struct FunctionSite {
  // No backend serves it outside of scopes. Set after the publication that allows it, cleared before the one that does not.
  std::atomic<bool> quiet{false};
  uint32_t index = 0;
  Selection selection = Selection::kEnabled;
  bool repeatable = false;  // see FunctionOptions
  std::string group, name, signature;
  // The program's function that makes sample calls, and how it is called; null: none.
  std::atomic<void (*)(void)> samples{nullptr};
  std::atomic<TakeSamples> take_samples{nullptr};  // set before
  std::atomic<int> declared{0};                    // objects that exist now
  FunctionSite* next = nullptr;
};
// The slot of a call beyond the inline ones. Throws yard::Error where calls nest too deep.
YARD_API HazardSlot& deep_slot(ThreadHead& thread, const FunctionSite& function);
struct FunctionDeclaration {
  const char *group, *name, *signature;
  Selection selection;
  bool repeatable;
  void (*samples)(void);
  TakeSamples take_samples;
};
YARD_API FunctionSite* declare_function(const FunctionDeclaration& d) noexcept;
YARD_API void undeclare_function(FunctionSite* site) noexcept;

// The backends that ran last, by function. One per thread.
struct FunctionCalls {
  static constexpr uint32_t kSites = 64;
  struct Last {
    const FunctionSite* site = nullptr;
    const char* backend = nullptr;
  };
  Last of[kSites];
  Last latest;
};
YARD_API FunctionCalls& make_function_calls(ThreadHead& thread);
inline constexpr const char* kOriginal = "original";

inline void remember(ThreadHead& thread, const FunctionSite& site, const char* backend) {
  FunctionCalls& calls =
      thread.functions != nullptr ? *thread.functions : make_function_calls(thread);
  // Stored twice: copying one from the other would wait for the stores.
  const FunctionCalls::Last last{&site, backend};
  calls.of[site.index % FunctionCalls::kSites] = last;
  calls.latest = last;
}
YARD_API const char* last_selected(const FunctionSite* site) noexcept;

// Whether a call of this thread runs the default without a look at the snapshot.
inline bool is_quiet(const FunctionSite& site) noexcept {
  const ThreadHead* const thread = t_thread;
  return site.quiet.load(std::memory_order_relaxed) &&
         (thread == nullptr ||
          (thread->scope & (ThreadHead::kProviders | ThreadHead::kTraced)) == 0);
}

// The table of calls outside of scopes, protected by `guard`; null if there is none yet.
inline const FunctionTable* protect_table(const FunctionSite& site, Guard& guard) noexcept {
  const auto* const current = g_snapshot.load(kFollow);
  if (current == nullptr) return nullptr;
  const auto* const all = reinterpret_cast<const FunctionTables*>(guard.protect(*current));
  return site.index < all->count ? all->tables[site.index] : nullptr;
}

template <class... A>
using VerifyFunction = int32_t (*)(void* self, VerifyArg<A>..., yard_verdict_t*);
// Whether a second implementation can be called with an argument that a first one has had.
template <class A>
inline constexpr bool kSurvives = std::is_reference_v<A> || std::is_trivially_copyable_v<A>;
// Whether no implementation can change the argument, neither the caller's nor the one passed again.
template <class A>
inline constexpr bool kOnlyRead =
    std::is_reference_v<A>
        ? std::is_const_v<std::remove_reference_t<A>>&& std::is_arithmetic_v<std::remove_cvref_t<A>>
        : std::is_arithmetic_v<A> || std::is_enum_v<A>;
template <>
inline constexpr bool kOnlyRead<const std::string&> = true;
template <>
inline constexpr bool kOnlyRead<std::string_view> = true;

// What is left of the arguments after an implementation has failed.
enum class Left : uint8_t {
  kNothing,    // something was consumed
  kPerhaps,    // they can be passed again; data they refer to may have been written
  kEverything  // nothing can have been changed
};
template <class... A>
inline constexpr Left kLeft = !(kSurvives<A> && ...)  ? Left::kNothing
                              : (kOnlyRead<A> && ...) ? Left::kEverything
                                                      : Left::kPerhaps;

// YARD_CALL_* of the thread's scope.
YARD_API uint32_t scope_flags(const ThreadHead& thread) noexcept;
// After a refusal; in the catch block of an exception that a verifier threw.
YARD_API void function_refused(const FunctionRow& row, const yard_verdict_t& v);
YARD_API void function_verifier_threw(const FunctionRow& row);

template <class... A>
inline int32_t ask(const ThreadHead& thread, const FunctionRow& row, yard_verdict_t& v,
                   const std::remove_reference_t<A>&... args) {
  v = {YARD_REASON_NONE, 0, {0, 0, 0}};
  if (thread.scope_state != nullptr) v.flags = scope_flags(thread);
  return reinterpret_cast<VerifyFunction<A...>>(row.verify)(row.self, args..., &v);
}

template <class... A>
inline bool accepts(const ThreadHead& thread, const FunctionRow& row,
                    const std::remove_reference_t<A>&... args) {
  yard_verdict_t v;
  int32_t code;
  try {
    code = ask<A...>(thread, row, v, args...);
  } catch (...) {
    if (thread_is_unwinding()) throw;
    function_verifier_threw(row);
    return false;
  }
  if (code == YARD_OK && v.reason == YARD_REASON_NONE) [[likely]]
    return true;
  function_refused(row, v);
  return false;
}

// Receives an argument as text, or as the tensor that it is.
using SayArgument = void (*)(void* to, const char* text, const yard_tensor_t* tensor);

// Numbers and texts are shown as they are, everything else by its type.
YARD_API std::string number_text(double number);
YARD_API std::string quoted_text(std::string_view text);  // its beginning
template <class T>
void describe_argument(const T& a, SayArgument say, void* to) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, TensorView>) {
    say(to, "", &a.c());
  } else if constexpr (std::is_same_v<Plain, yard_tensor_t>) {
    say(to, "", &a);
  } else if constexpr (std::is_same_v<Plain, bool>) {
    say(to, a ? "true" : "false", nullptr);
  } else if constexpr (std::is_floating_point_v<Plain>) {
    say(to, number_text(static_cast<double>(a)).c_str(), nullptr);
  } else if constexpr (std::is_integral_v<Plain>) {
    say(to, std::to_string(a).c_str(), nullptr);
  } else if constexpr (std::is_enum_v<Plain>) {
    say(to, std::to_string(static_cast<std::underlying_type_t<Plain>>(a)).c_str(), nullptr);
  } else if constexpr (std::is_same_v<Plain, std::string> ||
                       std::is_same_v<Plain, std::string_view>) {
    say(to, quoted_text(a).c_str(), nullptr);
  } else {
    SignatureText text;
    put_type<Plain>(text);
    say(to, std::string(text.text, text.size).c_str(), nullptr);
  }
}

// The arguments of a call, their types erased.
struct FunctionArgs {
  const void* tuple;
  int32_t (*ask)(const void* tuple, const ThreadHead& thread, const FunctionRow& row,
                 yard_verdict_t& v);
  // Calls say() for each argument.
  void (*describe)(const void* tuple, SayArgument say, void* to);
};

// What a call on the slow path has done so far.
struct FunctionTry {
  static constexpr uint32_t kMost = 8;
  const char* failed[kMost];  // backends
  uint32_t failures = 0;
  const FunctionTable* table = nullptr;  // that choose_function() has found; null: none
  uint32_t at = 0;                       // the place of its row there
  std::shared_ptr<void> probe = {};      // of a half-open breaker, entered by the row that runs
  bool reported = false;                 // function_failed() has seen how the row ended
};

// Makes the table that a call needs and has not found; loads the group on first use. Holding no guard. Returns false if that
// is not possible now, so that the call runs the default. Throws yard::Error in a scope with an invalid policy.
YARD_API bool attach_function(FunctionSite& site);
// Chooses a row; null for the default, and if there is no table. The guard then protects the row, or the table if the row
// takes a Next.
YARD_API const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                            const FunctionArgs& args, FunctionTry& so_far);
// In a catch (...): reports the failure to health. Returns whether the next implementation is tried.
YARD_API bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                              Left left, FunctionTry& so_far);
// Gives back the probe of a call on the slow path.
YARD_API void leave_probe(FunctionTry& so_far) noexcept;
// The row of choose_function() has ended: counts a success, unless function_failed() was called.
struct FunctionEnd {
  ThreadHead& thread;
  const FunctionRow& row;
  FunctionTry& so_far;
  ~FunctionEnd() {
    if (!so_far.reported) count(thread, row.succeeded);
    if (so_far.probe != nullptr) leave_probe(so_far);
  }
};
// The same for a row on the fast path, where `counter` is set to 0 after a failure.
struct FunctionSuccess {
  ThreadHead& thread;
  uint32_t counter;
  ~FunctionSuccess() { count(thread, counter); }
};

template <class... A>
struct ErasedArgs {
  using Tuple = std::tuple<const std::remove_reference_t<A>&...>;
  static int32_t ask_all(const void* tuple, const ThreadHead& thread, const FunctionRow& row,
                         yard_verdict_t& v) {
    return std::apply([&](const auto&... a) { return detail::ask<A...>(thread, row, v, a...); },
                      *static_cast<const Tuple*>(tuple));
  }
  static void describe_all(const void* tuple, SayArgument say, void* to) {
    std::apply([&](const auto&... a) { (describe_argument(a, say, to), ...); },
               *static_cast<const Tuple*>(tuple));
  }
  static FunctionArgs of(const Tuple& tuple) noexcept { return {&tuple, &ask_all, &describe_all}; }
};

// The default of a call.
template <class R, class... A>
struct FunctionDefault {
  R (*run)(void* context, A...);
  void* context;
};

template <class R, class... A>
[[gnu::always_inline]] inline R run_row(const FunctionRow& row, void* first,
                                        std::remove_reference_t<A>&... a) {
  return reinterpret_cast<R (*)(void*, A...)>(row.run)(first, static_cast<A&&>(a)...);
}

// Runs the row at a place of a table. If the row takes a Next, that is the rest of the table, which a guard protects.
template <class R, class... A>
struct FunctionChain {
  const FunctionTable* table;
  uint32_t at;
  const FunctionDefault<R, A...>& fallback;

  R run(const FunctionRow& row, std::remove_reference_t<A>&... args) const {
    if (!row.takes_next) return run_row<R, A...>(row, row.self, args...);
    yard_function_next_t next{sizeof next, 0, row.self, const_cast<FunctionChain*>(this),
                              reinterpret_cast<void (*)(void)>(&run_next)};
    return run_row<R, A...>(row, &next, args...);
  }
  static R run_next(void* self, A... args) {
    const auto& from = *static_cast<const FunctionChain*>(self);
    for (uint32_t i = from.at + 1; i < from.table->count; ++i) {
      const FunctionRow& row = *from.table->rows[i];
      if (row.verify == nullptr || accepts<A...>(*t_thread, row, args...))
        return FunctionChain{from.table, i, from.fallback}.run(row, args...);
    }
    return from.fallback.run(from.fallback.context, static_cast<A&&>(args)...);
  }
};

// `failed` is the backend that has failed on the fast path; null: none.
template <class R, class... A>
[[gnu::noinline]] R call_function_slow(FunctionSite& site, ThreadHead& thread,
                                       const FunctionDefault<R, A...>& fallback, const char* failed,
                                       std::remove_reference_t<A>&... args) {
  const typename ErasedArgs<A...>::Tuple tuple(args...);
  const FunctionArgs erased = ErasedArgs<A...>::of(tuple);
  FunctionTry so_far;
  if (failed != nullptr) so_far.failed[so_far.failures++] = failed;
  for (bool attached = true; attached;) {
    {
      Guard guard(thread, site);
      const FunctionRow* const row = choose_function(site, guard, thread, erased, so_far);
      if (row != nullptr) {
        const FunctionEnd end{thread, *row, so_far};
        try {
          return FunctionChain<R, A...>{so_far.table, so_far.at, fallback}.run(*row, args...);
        } catch (...) {
          if (!function_failed(site, *row, thread, kLeft<A...>, so_far)) throw;
        }
        continue;
      }
      if (so_far.table != nullptr) break;
    }
    attached = attach_function(site);
  }
  return fallback.run(fallback.context, static_cast<A&&>(args)...);
}

template <class R, class... A>
inline R call_function(FunctionSite& site, const FunctionDefault<R, A...>& fallback,
                       std::remove_reference_t<A>&... args) {
  ThreadHead& thread = t_thread != nullptr ? *t_thread : register_thread();
  const char* failed = nullptr;
  bool original = false;
  {
    Guard guard(thread, site);
    const FunctionTable* const table = protect_table(site, guard);
    if (table != nullptr && table->plain &&
        (thread.scope & (ThreadHead::kTraced | ThreadHead::kProviders)) == 0) [[likely]] {
      original = true;
      for (uint32_t i = 0; original && i < table->count; ++i) {
        const FunctionRow& row = *table->rows[i];
        if (row.verify != nullptr && !accepts<A...>(thread, row, args...)) continue;
        original = false;
        if (row.takes_next) [[unlikely]]
          break;
        // So far only values of the table that were branched on have been read, which no store overtakes. A row that
        // refused was read beyond that.
        if (i == 0) [[likely]]
          guard.move_to(&row);
        else
          guard.move_to_after_reading(&row);
        remember(thread, site, row.backend);
        FunctionSuccess end{thread, row.succeeded};
        try {
          return run_row<R, A...>(row, row.self, args...);
        } catch (...) {
          end.counter = 0;
          FunctionTry so_far;
          if (!function_failed(site, row, thread, kLeft<A...>, so_far)) throw;
          // The guard has moved off the table: start over on the slow path, without this row.
          failed = row.backend;
        }
      }
      if (original) {
        remember(thread, site, kOriginal);
        count(thread, table->original);
      }
    }
  }
  if (original) [[likely]]
    return fallback.run(fallback.context, static_cast<A&&>(args)...);
  return call_function_slow<R, A...>(site, thread, fallback, failed, args...);
}

}  // namespace detail
}  // namespace yard
