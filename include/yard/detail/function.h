// SPDX-License-Identifier: Apache-2.0
// The inline part of a call of a dispatched function (yard/function.h). Not for direct use.
//
// A function's table is one immutable object behind one pointer. A call protects it with its hazard slot while it asks
// verifiers, and then only the implementation that runs: a long call keeps nothing else from being freed.
#pragma once

#include <yard/detail/guard.h>
#include <yard/provide.h>
#include <yard/tensor.h>

namespace yard::detail {

// What a call reads of an implementation.
struct FunctionRow {
  void (*run)(void) = nullptr;     // R (*)(void* self, A...)
  void (*verify)(void) = nullptr;  // see VerifyFunction; null: accepts everything
  void* self = nullptr;
  const char* backend = nullptr;  // never freed
  uint32_t ran = 0;               // counter
};

struct FunctionTable {
  const FunctionRow* const* rows = nullptr;  // in the order in which they are asked
  uint32_t count = 0;
  uint32_t original = 0;  // counter
  // False: calls take the slow path, because verifiers are checked or the health of an implementation is watched.
  mutable std::atomic<bool> plain{true};
};
// The table of every function under the master switch: calls run the original at once.
extern YARD_API const FunctionTable kFunctionsOff;

struct FunctionScopes;  // tables by scope: src/provider/provider_table.cc

struct FunctionArgs;
// Calls `samples`, cast back to its type, which passes the arguments of each of its calls to take(to, arguments).
using TakeSamples = void (*)(void (*samples)(void), void (*take)(void* to, const FunctionArgs&),
                             void* to);

// A declared function: one per group, name and signature. Never freed.
struct FunctionSite {
  std::atomic<const FunctionTable*> table{nullptr};    // null: not asked for yet
  std::atomic<const FunctionScopes*> scoped{nullptr};  // null: not called in such a scope yet
  uint64_t id = 0;
  std::string group, name, signature;
  bool repeatable = false;  // see FunctionOptions
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
    uint64_t site = 0;
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
  const FunctionCalls::Last last{site.id, backend};
  calls.of[site.id % FunctionCalls::kSites] = last;
  calls.latest = last;
}
YARD_API const char* last_selected(const FunctionSite* site) noexcept;

// Whether a scope may decide otherwise than the master switch of the process.
inline bool decides_for_itself() noexcept {
  const ThreadHead* const thread = t_thread;
  return thread != nullptr && (thread->scope & ThreadHead::kProviders) != 0;
}

// The table for the scope that the thread is in; null: not made yet.
YARD_API const FunctionTable* scoped_table(const FunctionSite& site, const ThreadHead& thread,
                                           Guard& guard) noexcept;
// The table that a call of this thread reads, protected by `guard`; null: not made yet.
inline const FunctionTable* protect_table(const FunctionSite& site, const ThreadHead& thread,
                                          Guard& guard) noexcept {
  if ((thread.scope & ThreadHead::kProviders) != 0) [[unlikely]]
    return scoped_table(site, thread, guard);
  return guard.protect(site.table);
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
std::string argument_text(const T& a) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, bool>) {
    return a ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<Plain>) {
    return number_text(static_cast<double>(a));
  } else if constexpr (std::is_integral_v<Plain>) {
    return std::to_string(a);
  } else if constexpr (std::is_enum_v<Plain>) {
    return std::to_string(static_cast<std::underlying_type_t<Plain>>(a));
  } else if constexpr (std::is_same_v<Plain, std::string> ||
                       std::is_same_v<Plain, std::string_view>) {
    return quoted_text(a);
  } else {
    SignatureText text;
    put_type<Plain>(text);
    return std::string(text.text, text.size);
  }
}

template <class T>
void describe_argument(const T& a, SayArgument say, void* to) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, TensorView>)
    say(to, "", &a.c());
  else if constexpr (std::is_same_v<Plain, yard_tensor_t>)
    say(to, "", &a);
  else
    say(to, argument_text(a).c_str(), nullptr);
}

// The arguments of a call, their types erased.
struct FunctionArgs {
  const void* tuple;
  int32_t (*ask)(const void* tuple, const ThreadHead& thread, const FunctionRow& row,
                 yard_verdict_t& v);
  // Calls say() for each argument.
  void (*describe)(const void* tuple, SayArgument say, void* to);
};

// What one call has done so far; `story` is null while nothing fails and no breaker is half-open.
struct FunctionStory;
YARD_API void free_story(FunctionStory* story) noexcept;
struct FunctionTry {
  FunctionStory* story = nullptr;

  FunctionTry() = default;
  ~FunctionTry() {
    if (story != nullptr) [[unlikely]]
      free_story(story);
  }
  FunctionTry(const FunctionTry&) = delete;
  FunctionTry& operator=(const FunctionTry&) = delete;
};

// Makes the table that protect_table() has not found; loads the group on first use. Holding no guard. Throws yard::Error
// in a scope with an invalid policy.
YARD_API void attach_function(FunctionSite& site);
// The slow path: checks of verifiers, earlier failures. Null: the original. The guard then protects the
// row. Throws yard::Error where the call must not run.
YARD_API const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                            const FunctionArgs& args, FunctionTry& so_far);
// In a catch (...): reports the failure to health. Returns whether the next implementation is tried.
YARD_API bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                              Left left, FunctionTry& so_far);
// The row of choose_function() has returned or thrown: reports a success to health unless function_failed() was called.
YARD_API void function_ended(const FunctionSite& site, const FunctionRow& row,
                             FunctionTry& so_far) noexcept;
struct FunctionEnd {
  const FunctionSite& site;
  const FunctionRow& row;
  FunctionTry& so_far;
  ~FunctionEnd() {
    if (so_far.story != nullptr) function_ended(site, row, so_far);
  }
};

template <class R, class... A>
[[gnu::always_inline]] inline R run_row(const FunctionRow& row, std::remove_reference_t<A>&... a) {
  return reinterpret_cast<R (*)(void*, A...)>(row.run)(row.self, static_cast<A&&>(a)...);
}

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

template <class R, class... A>
[[gnu::noinline]] R call_slow_path(FunctionSite& site, ThreadHead& thread, R (*body)(A...),
                                   FunctionTry& so_far, std::remove_reference_t<A>&... args) {
  const typename ErasedArgs<A...>::Tuple tuple(args...);
  const FunctionArgs erased = ErasedArgs<A...>::of(tuple);
  for (;;) {
    if (site.table.load(std::memory_order_acquire) == nullptr ||
        (thread.scope & ThreadHead::kProviders) != 0)
      attach_function(site);
    Guard guard(thread, site);
    const FunctionRow* row = choose_function(site, guard, thread, erased, so_far);
    if (row == nullptr) break;
    const FunctionEnd end{site, *row, so_far};
    try {
      return run_row<R, A...>(*row, args...);
    } catch (...) {
      if (!function_failed(site, *row, thread, kLeft<A...>, so_far)) throw;
    }
  }
  return body(static_cast<A&&>(args)...);
}

template <class R, class... A>
inline R call_function(FunctionSite& site, R (*body)(A...), std::remove_reference_t<A>&... args) {
  ThreadHead& thread = t_thread != nullptr ? *t_thread : register_thread();
  FunctionTry so_far;
  bool original = false;
  {
    Guard guard(thread, site);
    const FunctionTable* const table = protect_table(site, thread, guard);
    const bool scoped = (thread.scope & ThreadHead::kProviders) != 0;
    if (table != nullptr && table->plain.load(std::memory_order_relaxed) &&
        (thread.scope & ThreadHead::kTraced) == 0) [[likely]] {
      original = true;
      for (uint32_t i = 0; original && i < table->count; ++i) {
        const FunctionRow& row = *table->rows[i];
        if (row.verify != nullptr && !accepts<A...>(thread, row, args...)) continue;
        // So far only values of the table that were branched on have been read, which no store overtakes. A row that
        // refused, and tables by scope, were read beyond that.
        if (i == 0 && !scoped) [[likely]]
          guard.move_to(&row);
        else
          guard.move_to_after_reading(&row);
        remember(thread, site, row.backend);
        count(thread, row.ran);
        try {
          return run_row<R, A...>(row, args...);
        } catch (...) {
          if (!function_failed(site, row, thread, kLeft<A...>, so_far)) throw;
          // The guard has moved off the table: start over on the slow path, without this row.
          original = false;
        }
      }
      if (original) {
        remember(thread, site, kOriginal);
        count(thread, table->original);
      }
    }
  }
  if (original) [[likely]]
    return body(static_cast<A&&>(args)...);
  return call_slow_path<R, A...>(site, thread, body, so_far, args...);
}

}  // namespace yard::detail
