// SPDX-License-Identifier: Apache-2.0
// The inline part of a call of a dispatched function (function.h). Not for direct use.
//
// A function's table is one immutable object behind one pointer. A call holds it in its hazard slot while it
// asks verifiers, and then only the implementation that runs: a call that never ends holds back nothing else.
#pragma once

#include <yard/detail/function_text.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/verdict.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace yard::detail {

// What a call reads of an implementation.
struct FunctionRow {
  void (*run)(void) = nullptr;     // R (*)(void* self, A...)
  void (*verify)(void) = nullptr;  // see VerifyFunction; null: accepts everything
  void* self = nullptr;
  const char* backend = nullptr;  // stays for ever
  uint32_t ran = 0;               // counter
};

struct FunctionTable {
  const FunctionRow* const* rows = nullptr;  // in the order in which they are asked
  uint32_t count = 0;
  uint32_t original = 0;  // counter
  // False: calls take the long way, since verifiers are checked or the health of somebody is watched.
  mutable std::atomic<bool> plain{true};
};
// Of every function under the master switch: calls outside of commit groups go straight to the original.
extern YARD_API const FunctionTable kFunctionsOff;

struct FunctionArgs;
// Has `samples`, a function of its own type, hand the arguments of its calls to take(to, arguments).
using TakeSamples = void (*)(void (*samples)(void), void (*take)(void* to, const FunctionArgs&),
                             void* to);

// A declared function: one for each group, name and signature. Stays for ever.
struct FunctionSite {
  std::atomic<const FunctionTable*> table{nullptr};  // null: not asked for yet
  uint64_t id = 0;
  std::string group, name, signature;
  std::string point;        // under which commit groups know its choice
  bool repeatable = false;  // see FunctionOptions
  // The program's function that makes sample calls, and how it is asked for them; null: there is none.
  std::atomic<void (*)(void)> samples{nullptr};
  std::atomic<TakeSamples> take_samples{nullptr};  // set before
  std::atomic<int> declared{0};                    // objects that exist now
  FunctionSite* next = nullptr;
};
struct FunctionDeclaration {
  const char *group, *name, *signature, *choice;
  bool repeatable;
  void (*samples)(void);
  TakeSamples take_samples;
};
YARD_API FunctionSite* declare_function(const FunctionDeclaration& d) noexcept;
YARD_API void undeclare_function(FunctionSite* site) noexcept;

// Who ran last, by function. Of a thread.
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
  // Two stores each: to copy one from the other would wait for both.
  const FunctionCalls::Last last{site.id, backend};
  calls.of[site.id % FunctionCalls::kSites] = last;
  calls.latest = last;
}
YARD_API const char* last_selected(const FunctionSite* site) noexcept;

// Whether this thread is in one: then no call chooses by itself.
inline bool in_commit_group() noexcept {
  const ThreadHead* const thread = t_thread;
  return thread != nullptr && (thread->scope & ThreadHead::kCommitted) != 0;
}

template <class... A>
using VerifyFunction = int32_t (*)(void* self, VerifyArg<A>..., yard_verdict_t*);
// Whether a second implementation can be given what a first one was given.
template <class A>
inline constexpr bool kSurvives = std::is_reference_v<A> || std::is_trivially_copyable_v<A>;
// Whether no implementation can change what the caller has, nor what it is given again.
template <class A>
inline constexpr bool kOnlyRead =
    std::is_reference_v<A>
        ? std::is_const_v<std::remove_reference_t<A>>&& std::is_arithmetic_v<std::remove_cvref_t<A>>
        : std::is_arithmetic_v<A> || std::is_enum_v<A>;
template <>
inline constexpr bool kOnlyRead<const std::string&> = true;
template <>
inline constexpr bool kOnlyRead<std::string_view> = true;

// What is left of the arguments when an implementation has failed.
enum class Left : uint8_t {
  kNothing,    // something was consumed
  kPerhaps,    // they can be given again; what they lead to may have been written
  kEverything  // nobody could change anything
};
template <class... A>
inline constexpr Left kLeft = !(kSurvives<A> && ...)  ? Left::kNothing
                              : (kOnlyRead<A> && ...) ? Left::kEverything
                                                      : Left::kPerhaps;

// YARD_CALL_* of the thread's scope.
YARD_API uint32_t scope_flags(const ThreadHead& thread) noexcept;
// A verifier said no; or it threw, and the exception is being handled.
YARD_API void function_refused(const FunctionRow& row, const yard_verdict_t& v);
YARD_API void function_verifier_threw(const FunctionRow& row);

template <class... A>
inline int32_t ask(const ThreadHead& thread, const FunctionRow& row, yard_verdict_t& v,
                   const std::remove_reference_t<A>&... args) {
  v = {YARD_REASON_NONE, 0, {0, 0, 0}};
  if (thread.scope_state != nullptr) v.pad_ = static_cast<int32_t>(scope_flags(thread));
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

// The arguments of a call, for code that does not know their types.
struct FunctionArgs {
  const void* tuple;
  int32_t (*ask)(const void* tuple, const ThreadHead& thread, const FunctionRow& row,
                 yard_verdict_t& v);
  // Calls say() with each argument for people, or with the tensor that it is.
  void (*describe)(const void* tuple, SayArgument say, void* to);
};

// What one call has been through: nothing, as long as nothing fails and no backend is half-open.
struct FunctionStory;
YARD_API void free_story(FunctionStory* story) noexcept;
struct FunctionTry {
  FunctionStory* story = nullptr;
  bool chose = false;  // for its commit group

  FunctionTry() = default;
  ~FunctionTry() {
    if (story != nullptr) [[unlikely]]
      free_story(story);
  }
  FunctionTry(const FunctionTry&) = delete;
  FunctionTry& operator=(const FunctionTry&) = delete;
};

// Makes the table, the first time with all that the group can have. Outside of guards.
YARD_API void attach_function(FunctionSite& site);
// The long way: commit groups, checks of verifiers, what failed already. Null: the original. Leaves the row
// held by the guard. Throws yard::Error where the call must not go on.
YARD_API const FunctionRow* choose_function(FunctionSite& site, Guard& guard, ThreadHead& thread,
                                            const FunctionArgs& args, FunctionTry& so_far);
// In a catch (...): whether the call goes on with the next one. Tells health, too.
YARD_API bool function_failed(const FunctionSite& site, const FunctionRow& row, ThreadHead& thread,
                              Left left, FunctionTry& so_far);
// The row that choose_function() gave has run, well unless function_failed() was called: tells health.
YARD_API void function_ended(const FunctionSite& site, const FunctionRow& row,
                             FunctionTry& so_far) noexcept;
class FunctionEnd {
 public:
  FunctionEnd(const FunctionSite& site, const FunctionRow& row, FunctionTry& so_far) noexcept
      : site_(site), row_(row), so_far_(so_far) {}
  ~FunctionEnd() {
    if (so_far_.story != nullptr) function_ended(site_, row_, so_far_);
  }
  FunctionEnd(const FunctionEnd&) = delete;
  FunctionEnd& operator=(const FunctionEnd&) = delete;

 private:
  const FunctionSite& site_;
  const FunctionRow& row_;
  FunctionTry& so_far_;
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
[[gnu::noinline]] R call_the_long_way(FunctionSite& site, ThreadHead& thread, R (*body)(A...),
                                      FunctionTry& so_far, std::remove_reference_t<A>&... args) {
  const typename ErasedArgs<A...>::Tuple tuple(args...);
  const FunctionArgs erased = ErasedArgs<A...>::of(tuple);
  for (;;) {
    if (site.table.load(std::memory_order_acquire) == nullptr) attach_function(site);
    Guard guard(thread);
    const FunctionRow* row = choose_function(site, guard, thread, erased, so_far);
    if (row == nullptr) break;
    const FunctionEnd end(site, *row, so_far);
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
    Guard guard(thread);
    const FunctionTable* const table = guard.protect(site.table);
    constexpr uint64_t kLongWay = ThreadHead::kCommitted | ThreadHead::kTraced;
    if (table != nullptr && table->plain.load(std::memory_order_relaxed) &&
        (thread.scope & kLongWay) == 0) [[likely]] {
      original = true;
      for (uint32_t i = 0; original && i < table->count; ++i) {
        const FunctionRow& row = *table->rows[i];
        if (row.verify != nullptr && !accepts<A...>(thread, row, args...)) continue;
        // Of the table itself only what was branched on has been read, which no store overtakes. Whoever refused
        // has been read for more.
        if (i == 0) [[likely]]
          guard.move_to(&row);
        else
          guard.move_to_after_reading(&row);
        remember(thread, site, row.backend);
        count(thread, row.ran);
        try {
          return run_row<R, A...>(row, args...);
        } catch (...) {
          if (!function_failed(site, row, thread, kLeft<A...>, so_far)) throw;
          original =
              false;  // the table has been let go: once more from the beginning, without this one
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
  return call_the_long_way<R, A...>(site, thread, body, so_far, args...);
}

}  // namespace yard::detail
