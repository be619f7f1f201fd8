// SPDX-License-Identifier: Apache-2.0
// The inline part of a call of a function (function.h). Not for direct use.
//
// One store of a snapshot switches all tables. A call holds the snapshot with its hazard slot while
// it asks verifiers, and then only the implementation that runs, unless that takes a Next. Calls of
// a `quiet` site, which no backend serves, read nothing else.
#pragma once

#include <yard/detail/guard.h>
#include <yard/tensor.h>
#include <yard/verdict.h>

namespace yard {

namespace dispatch {
class Snapshot;
}

enum class Selection : uint8_t { kEnabled, kActive };  // see function.h

namespace detail {

struct FunctionRow {
  void (*run)(void) = nullptr;     // R (*)(void* self, A...)
  void (*verify)(void) = nullptr;  // see ask(); null accepts everything
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
// The first base class of a snapshot.
struct FunctionTables {
  const FunctionTable* const* tables = nullptr;  // by FunctionSite::index; null if not made yet
  uint32_t count = 0;
};
// The current snapshot of the shared runtime. Null until the first call of a function.
extern YARD_API std::atomic<const std::atomic<const dispatch::Snapshot*>*> g_snapshot;

struct FunctionArgs;
// The program's function that makes sample calls; make() passes each to take(to, arguments).
struct FunctionSamples {
  void (*function)(void);
  void (*make)(void (*function)(void), void (*take)(void* to, const FunctionArgs&), void* to);
  // Calls `run` as FunctionRow::run with a sample call, and appends the numbers of its result.
  // Returns whether these may be rounded. Null if results cannot be compared.
  bool (*result)(void (*run)(void), void* self, const void* tuple, std::vector<long double>& to);
  void (*original)(void);  // run with `self`
  void* self;
};

// A declared function, one for each group, name, signature and options. Sites are never freed.
struct FunctionSite {
  // Whether no backend serves the function outside of scopes. Set after publishing such a snapshot,
  // and cleared before publishing others.
  std::atomic<bool> quiet{false};
  uint32_t index = 0;
  Selection selection = Selection::kEnabled;
  bool repeatable = false;  // see FunctionOptions
  std::string group, name, signature;
  std::atomic<const FunctionSamples*> samples{nullptr};
  std::atomic<int> declared{0};  // objects that exist now
  FunctionSite* next = nullptr;
};
// Returns a slot beyond the inline ones. Throws yard::Error if calls nest too deep.
YARD_API HazardSlot& deep_slot(ThreadHead& thread, const FunctionSite& function);
YARD_API FunctionSite* declare_function(const char* group, const char* name, const char* signature,
                                        Selection selection, bool repeatable,
                                        const FunctionSamples* samples) noexcept;
YARD_API void undeclare_function(FunctionSite* site) noexcept;

struct FunctionCalls {  // the backends that ran last on a thread, by function
  static constexpr uint32_t kSites = 64;
  struct Last {
    const FunctionSite* site = nullptr;
    const char* backend = "";
  };
  Last of[kSites];
  uint32_t latest = 0;  // index
};
YARD_API FunctionCalls& make_function_calls(ThreadHead& thread);
inline constexpr const char* kOriginal = "original";

inline void remember(ThreadHead& thread, const FunctionSite& site, const char* backend) {
  FunctionCalls& calls =
      thread.functions != nullptr ? *thread.functions : make_function_calls(thread);
  calls.latest = site.index % FunctionCalls::kSites;
  calls.of[calls.latest] = {&site, backend};
}
YARD_API const char* last_selected(const FunctionSite* site) noexcept;

inline bool in_function_scope(const ThreadHead& thread) noexcept {
  return (thread.scope & (ThreadHead::kProviders | ThreadHead::kTraced)) != 0;
}
// Whether a call of this thread runs the default without reading the snapshot.
inline bool is_quiet(const FunctionSite& site) noexcept {
  const ThreadHead* const thread = t_thread;
  return site.quiet.load(std::memory_order_relaxed) &&
         (thread == nullptr || !in_function_scope(*thread));
}

// Returns the table for calls outside of scopes, or null if there is none yet.
inline const FunctionTable* protect_table(const FunctionSite& site, Guard& guard) noexcept {
  const auto* const current = g_snapshot.load(kFollow);
  if (current == nullptr) return nullptr;
  const auto* const all = reinterpret_cast<const FunctionTables*>(guard.protect(*current));
  return site.index < all->count ? all->tables[site.index] : nullptr;
}

enum class Left : uint8_t {  // what is left of the arguments after an implementation has failed
  kNothing,                  // something was consumed
  kPerhaps,                  // they can be passed again; data they refer to may have been written
  kEverything                // nothing can have been changed
};
template <class A, class T = std::remove_reference_t<A>>
inline constexpr bool kOnlyRead =
    ((std::is_arithmetic_v<T> || std::is_enum_v<T>)&&(!std::is_reference_v<A> ||
                                                      std::is_const_v<T>)) ||
    std::is_same_v<A, std::string_view> || std::is_same_v<A, const std::string&>;
template <class... A>
inline constexpr Left kLeft =
    !((std::is_reference_v<A> || std::is_trivially_copyable_v<A>)&&...) ? Left::kNothing
    : (kOnlyRead<A> && ...)                                             ? Left::kEverything
                                                                        : Left::kPerhaps;

YARD_API uint32_t scope_flags(const ThreadHead& thread) noexcept;
// Called after a refusal, and in the catch block of a verifier's exception.
YARD_API void function_refused(const FunctionRow& row, yard_verdict_t v);
YARD_API void function_verifier_threw(const FunctionRow& row);
YARD_API bool function_accepts(const FunctionRow& row, const ThreadHead& thread,
                               const FunctionArgs& args);

template <class... A>
inline int32_t ask(const ThreadHead& thread, const FunctionRow& row, yard_verdict_t& v,
                   const std::remove_reference_t<A>&... args) {
  v = {YARD_REASON_NONE, 0, {0, 0, 0}};
  if (thread.scope_state != nullptr) v.flags = scope_flags(thread);
  using Verify = int32_t (*)(void* self, VerifyArg<A>..., yard_verdict_t*);
  return reinterpret_cast<Verify>(row.verify)(row.self, args..., &v);
}

struct ShownArgument {
  std::string text;
  const yard_tensor_t* tensor = nullptr;
};
YARD_API std::string shown(double number);
YARD_API std::string shown(std::string_view text);  // its beginning, quoted
template <class T>
YARD_MODE_TAG ShownArgument show(const T& a) {
  if constexpr (std::is_same_v<T, TensorView>) {
    return {{}, &a.c()};
  } else if constexpr (std::is_same_v<T, yard_tensor_t>) {
    return {{}, &a};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {a ? "true" : "false"};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {shown(static_cast<double>(a))};
  } else if constexpr (std::is_integral_v<T>) {
    return {std::to_string(a)};
  } else if constexpr (std::is_enum_v<T>) {
    return show(static_cast<std::underlying_type_t<T>>(a));
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
    return {shown(std::string_view(a))};
  } else {
    SignatureText type;
    put_type<T>(type);
    return {std::string(type.text, type.size)};
  }
}

// The arguments of a call with their types erased. Without a verifier, `ask` accepts.
struct FunctionArgs {
  const void* tuple;
  int32_t (*ask)(const void* tuple, const ThreadHead& thread, const FunctionRow& row,
                 yard_verdict_t& v);
  std::vector<ShownArgument> (*show)(const void* tuple);
};
template <class... A>
YARD_MODE_TAG FunctionArgs
erase(const std::tuple<const std::remove_reference_t<A>&...>& args) noexcept {
  using Tuple = std::tuple<const std::remove_reference_t<A>&...>;
  return {
      &args,
      [](const void* tuple, const ThreadHead& thread, const FunctionRow& row, yard_verdict_t& v) {
        if (row.verify == nullptr) return int32_t{YARD_OK};
        return std::apply([&](const auto&... a) { return detail::ask<A...>(thread, row, v, a...); },
                          *static_cast<const Tuple*>(tuple));
      },
      [](const void* tuple) {
        return std::apply(
            [](const auto&... a) { return std::vector<ShownArgument>{detail::show(a)...}; },
            *static_cast<const Tuple*>(tuple));
      }};
}

// See FunctionSamples::result. Arguments are copied or passed by reference to const.
template <class R, class... A>
YARD_MODE_TAG constexpr decltype(FunctionSamples::result) sample_runner() {
  using T = std::remove_cvref_t<std::conditional_t<std::is_void_v<R>, std::nullptr_t, R>>;
  constexpr bool number = requires(const T& t) { static_cast<long double>(t); };
  constexpr bool numbers = requires(const T& t) { static_cast<long double>(*t.begin()); };
  if constexpr ((number || numbers) &&
                (std::is_convertible_v<const std::remove_reference_t<A>&, A> && ...))
    return [](void (*run)(void), void* self, const void* args, std::vector<long double>& to) {
      const auto call = [&](const auto&... a) -> R {
        return reinterpret_cast<R (*)(void*, A...)>(run)(self, static_cast<A>(a)...);
      };
      const auto put = [&]<class N>(const N& n) {
        return to.push_back(static_cast<long double>(n)), std::is_floating_point_v<N>;
      };
      const auto& result =
          std::apply(call, *static_cast<const typename SampleCalls<R(A...)>::Arguments*>(args));
      if constexpr (number) return put(result);
      bool rounded = false;
      if constexpr (numbers)
        for (const auto& n : result) rounded = put(n);
      return rounded;
    };
  return nullptr;
}

#if YARD_EXCEPTIONS
template <class... A>
inline bool accepts(const ThreadHead& thread, const FunctionRow& row,
                    const std::remove_reference_t<A>&... args) {
  yard_verdict_t v;
  try {
    const int32_t code = ask<A...>(thread, row, v, args...);
    if (code == YARD_OK && v.reason == YARD_REASON_NONE) [[likely]]
      return true;
  } catch (...) {
    if (thread_is_unwinding()) throw;
    function_verifier_threw(row);
    return false;
  }
  function_refused(row, v);
  return false;
}
#else
template <class... A>
YARD_MODE_TAG inline bool accepts(const ThreadHead& thread, const FunctionRow& row,
                                  const std::remove_reference_t<A>&... args) {
  return function_accepts(row, thread, erase<A...>(std::tie(args...)));
}
#endif

// In a catch (...), tells health that the row has failed. Returns whether to try the next row.
YARD_API bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                              Left left);
using RunRow = void (*)(const void* frame, const FunctionRow& row, const FunctionTable& table,
                        uint32_t at);
// The slow path, for scopes, traces, chains, probes of half-open breakers, the first call, and a
// call after the backend `failed` (may be null) has failed. Returns false if the default must run.
YARD_API bool run_function(FunctionSite& site, ThreadHead& thread, const FunctionArgs& args,
                           Left left, const char* failed, const void* frame, RunRow run);
// Counts a success at the end, unless `counter` was set to 0 after a failure.
struct FunctionSuccess {
  ThreadHead& thread;
  uint32_t counter;
  ~FunctionSuccess() { count(thread, counter); }
};

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

// Runs the row at a place of a table. Its Next is the rest of the table, which a guard protects.
template <class R, class... A>
struct YARD_MODE_TAG FunctionChain {
  const FunctionTable& table;
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
    for (uint32_t i = from.at + 1; i < from.table.count; ++i) {
      const FunctionRow& row = *from.table.rows[i];
      if (row.verify == nullptr || accepts<A...>(*t_thread, row, args...))
        return FunctionChain{from.table, i, from.fallback}.run(row, args...);
    }
    return from.fallback.run(from.fallback.context, static_cast<A&&>(args)...);
  }
};

template <class R, class... A>
[[gnu::noinline]] YARD_MODE_TAG R call_function_slow(FunctionSite& site, ThreadHead& thread,
                                                     const FunctionDefault<R, A...>& fallback,
                                                     const char* failed,
                                                     std::remove_reference_t<A>&... args) {
  const std::tuple<const std::remove_reference_t<A>&...> all(args...);
  std::optional<std::tuple<std::conditional_t<std::is_void_v<R>, char, R>>> result;
  const auto run = [&](const FunctionRow& row, const FunctionTable& table, uint32_t at) {
    const FunctionChain<R, A...> chain{table, at, fallback};
    if constexpr (std::is_void_v<R>)
      chain.run(row, args...);
    else
      result.emplace(chain.run(row, args...));
  };
  const RunRow run_erased = [](const void* f, const FunctionRow& row, const FunctionTable& table,
                               uint32_t at) {
    (*static_cast<const decltype(run)*>(f))(row, table, at);
  };
  if (!run_function(site, thread, erase<A...>(all), kLeft<A...>, failed, &run, run_erased))
    return fallback.run(fallback.context, static_cast<A&&>(args)...);
  if constexpr (!std::is_void_v<R>) return std::get<0>(*std::move(result));
}

template <class R, class... A>
YARD_MODE_TAG inline R call_function(FunctionSite& site, const FunctionDefault<R, A...>& fallback,
                                     std::remove_reference_t<A>&... args) {
  ThreadHead& thread = t_thread != nullptr ? *t_thread : register_thread();
  const char* failed = nullptr;
#if YARD_EXCEPTIONS  // otherwise the library handles exceptions of implementations
  bool original = false;
  {
    Guard guard(thread, site);
    const FunctionTable* const table = protect_table(site, guard);
    if (table != nullptr && table->plain && !in_function_scope(thread)) [[likely]] {
      uint32_t i = 0;
      while (i < table->count && table->rows[i]->verify != nullptr &&
             !accepts<A...>(thread, *table->rows[i], args...))
        ++i;
      original = i == table->count;
      if (original) {
        remember(thread, site, kOriginal);
        count(thread, table->original);
      } else if (const FunctionRow& row = *table->rows[i]; !row.takes_next) [[likely]] {
        // So far only values of the table that were branched on have been read, which no store
        // overtakes. A row that refused was read beyond that.
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
          if (!function_failed(site, row, thread, kLeft<A...>)) throw;
          // The guard no longer holds the table, so start over without this row.
          failed = row.backend;
        }
      }
    }
  }
  if (original) [[likely]]
    return fallback.run(fallback.context, static_cast<A&&>(args)...);
#endif
  return call_function_slow<R, A...>(site, thread, fallback, failed, args...);
}

}  // namespace detail
}  // namespace yard
