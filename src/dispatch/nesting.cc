// SPDX-License-Identifier: Apache-2.0
// Calls that nest too deep: kernels or functions that call themselves or each other without end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dispatch/core.h"

namespace yard::dispatch {
namespace {

bool is_too_deep(base::ThreadRecord& thread, uint32_t most) {
  if (thread.depth <= ThreadHead::kInlineSlots) thread.nesting.refusing = false;  // it is back
  return thread.nesting.refusing || thread.depth >= most || base::stack_is_low();
}

// The error of a call that is too deep. `kind` is "op" or "function".
Status refuse(base::ThreadRecord& thread, uint32_t most, const char* kind, std::string_view name) {
  auto& nesting = thread.nesting;
  if (!nesting.refusing) {
    const std::string why =
        base::stack_is_low()
            ? fmt::format("{} '{}': calls nest too deep: the stack of the thread is full after {}",
                          kind, name, thread.depth)
            : fmt::format("{} '{}': calls nest too deep: expected at most {} on a thread", kind,
                          name, most);
    const size_t n = std::min(why.size(), sizeof nesting.why - 1);
    std::memcpy(nesting.why, why.data(), n);
    nesting.why[n] = '\0';
    nesting.refusing = thread.depth > ThreadHead::kInlineSlots;
  }
  nesting.refused_at = thread.depth + 1;
  nesting.refused_from = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return Status(Code::kWouldDeadlock, nesting.why);
}

}  // namespace

Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op) {
  if (is_too_deep(thread, most)) return refuse(thread, most, "op", op).release();
  return thread.reserve_slot() ? nullptr : Status::out_of_memory().release();
}

HazardSlot& nested_slot(ThreadHead& head, uint32_t most, std::string_view group,
                        std::string_view name) {
  auto& thread = static_cast<base::ThreadRecord&>(head);
  if (is_too_deep(thread, most))
    refuse(thread, most, "function", fmt::format("{}/{}", group, name)).or_throw();
  if (!thread.reserve_slot()) throw std::bad_alloc();
  return thread.deep_slot(thread.depth);
}

}  // namespace yard::dispatch
