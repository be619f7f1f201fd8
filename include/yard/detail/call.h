// SPDX-License-Identifier: Apache-2.0
// The inline part of a typed call: a call like the thread's last one goes straight to its kernel's typed
// entry, with its arguments in registers. Not for direct use.
#pragma once

#include <yard/detail/guard.h>
#include <yard/detail/recent.h>
#include <yard/params.h>

#include <cstdio>
#include <exception>
#include <initializer_list>
#include <tuple>

namespace yard::detail {

// One call; null when it went well.
YARD_API Status::Rep* dispatch(Site* site, const yard_value_t* args);
// A memo's plan on packed arguments. Inside the guard.
YARD_API Status::Rep* run_recent(Site* site, const Recent& recent, const yard_value_t* args);
// After the kernel of a memo's plan failed. Inside the guard.
YARD_API Status::Rep* recent_failed(Site* site, const void* entry, const void* plan,
                                    const yard_value_t* args, uint32_t flags, int32_t code);
YARD_API void free_call_scratch(yard_call_t* call) noexcept;

// What a kernel without workspace or state is given. Field by field: g++ writes the words of a braced list
// twice.
[[gnu::always_inline]] inline void start_call(yard_call_t& call, char* error, uint32_t flags,
                                              const yard_host_t* host, void* self) noexcept {
  call.size = sizeof call;
  call.flags = flags;
  call.host = host;
  call.self = self;
  call.state = nullptr;
  call.workspace = nullptr;
  call.workspace_size = 0;
  call.error = error;
  call.error_size = ThreadHead::kErrorBytes;
  call.host_data = nullptr;
  error[0] = '\0';
}

// Calls a typed entry; exceptions become faults with their text in the error buffer.
template <class... W>
[[gnu::always_inline]] inline int32_t call_typed(void (*typed)(void), yard_call_t& call, W... w) {
  int32_t code;
  try {
    code = reinterpret_cast<int32_t (*)(yard_call_t*, W...)>(typed)(&call, w...);
  } catch (const std::exception& e) {
    code = YARD_FAULT;
    std::snprintf(call.error, call.error_size, "%s", e.what());
  } catch (...) {
    if (thread_is_unwinding()) {
      free_call_scratch(&call);
      throw;
    }
    code = YARD_FAULT;
    std::snprintf(call.error, call.error_size, "an exception that is no std::exception");
  }
  if (call.host_data != nullptr) [[unlikely]]
    free_call_scratch(&call);
  return code;
}

template <class... P>
inline constexpr bool kInRegisters = (!std::is_void_v<typename Param<P>::Type> && ...);

// Ops whose typed calls are remembered: the first tensor is the only one written, every one is there.
template <class... P>
inline constexpr bool kRemembered = [] {
  bool first = true, all = kInRegisters<P...>;
  for (const char letter : std::initializer_list<char>{Param<P>::letter...}) {
    if (letter == 'w' || letter == 'm') all &= first;
    if (letter == 'r') all &= !first;
    if (letter == 'w' || letter == 'm' || letter == 'r') first = false;
    if (letter == 'R' || letter == 'W' || letter == 'M') all = false;
  }
  return all && !first;
}();

// The parameter if it is a tensor, in a tuple, else an empty one.
template <class P>
auto tensor_of([[maybe_unused]] const P& p) noexcept {
  if constexpr (Param<P>::is_tensor)
    return std::tuple(Param<P>::wire(p));
  else
    return std::tuple<>();
}

// One typed call; null when it went well.
template <class... P>
inline Status::Rep* call_typed_op(Site* site, P... p) {
  if constexpr (kRemembered<P...>) {
    ThreadHead* thread = t_thread;
    if (thread != nullptr && thread->recent != nullptr) [[likely]] {
      const Recent& last = recent(*thread->recent, site->id);
      const auto tensors = std::tuple_cat(tensor_of<P>(p)...);
      const auto same = [&](const auto*... t) { return last.is_of(site->id, thread->scope, t...); };
      if (std::apply(same, tensors)) [[likely]] {
        Guard guard(*thread);
        guard.announce(last.entry);
        if (last.is_current()) [[likely]] {
          if (last.typed == nullptr) [[unlikely]] {
            const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
            return run_recent(site, last, args);
          }
          yard_call_t call;
          start_call(call, thread->message(), last.flags, last.host, last.self);
          // A kernel may call ops itself, and the memo become another's.
          const void *const entry = last.entry, *const plan = last.plan;
          const uint32_t counter = last.counter;
          const int32_t code = call_typed(last.typed, call, Param<P>::wire(p)...);
          if (code == YARD_OK) [[likely]] {
            count(*thread, counter);
            return nullptr;
          }
          const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
          return recent_failed(site, entry, plan, args, call.flags, code);
        }
      }
    }
  }
  const yard_value_t args[kCells<P...>] = {Param<P>::pack(p)...};
  return dispatch(site, args);
}

}  // namespace yard::detail
