// SPDX-License-Identifier: Apache-2.0
// Macros and functions that make errors, return the error of a Result, or turn lack of memory into
// an error.
#pragma once

#include <fmt/format.h>
#include <yard/status.h>

#include <new>
#include <type_traits>
#include <utility>

// YARD_ASSIGN_OR_RETURN(const auto path, args.path("path"));
#define YARD_ASSIGN_OR_RETURN(to, expr) YARD_ASSIGN_IN_LINE(to, expr, __LINE__)
#define YARD_ASSIGN_IN_LINE(to, expr, line) YARD_ASSIGN_BY(to, expr, line)
#define YARD_ASSIGN_BY(to, expr, line)                                         \
  auto yard_result_##line = (expr);                                            \
  if (!yard_result_##line.ok()) return std::move(yard_result_##line).status(); \
  to = *std::move(yard_result_##line)

namespace yard::base {

template <class... Args>
Status failure(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return Status(code, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
Status invalid(fmt::format_string<Args...> text, Args&&... args) {
  return failure(Code::kInvalidArgument, text, std::forward<Args>(args)...);
}

// Returns the Status or Result of f(), or Status::out_of_memory() if f() throws std::bad_alloc. For
// functions at the boundary of the library.
template <class F, class R = std::invoke_result_t<const F&>>
std::conditional_t<std::is_void_v<R>, Status, R> or_out_of_memory(const F& f) {
  try {
    if constexpr (!std::is_void_v<R>)
      return f();
    else
      return f(), Status();
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

}  // namespace yard::base
