// SPDX-License-Identifier: Apache-2.0
#include "dispatch/nesting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/thread_state.h"
#include "registry/records.h"

namespace yard::dispatch {
namespace {

// What runs in a slot is a registry::Kernel, or one of these, by the lowest bits of the pointer.
constexpr uintptr_t kFunction = 1, kHook = 2, kTags = 3;

const void* tagged(const void* what, uintptr_t tag) {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(what) | tag);
}

// Such as "copy ('kernel.a')", "group/function" or "hook".
std::string describe_running(const void* running) {
  const auto bits = reinterpret_cast<uintptr_t>(running);
  const void* const what = reinterpret_cast<const void*>(bits & ~kTags);
  if ((bits & kTags) == kHook) return name_of(static_cast<const HookDeclaration*>(what));
  if ((bits & kTags) == kFunction) {
    const auto& f = *static_cast<const FunctionSite*>(what);
    return f.group + "/" + f.name;
  }
  const auto& kernel = *static_cast<const registry::Kernel*>(what);
  return fmt::format("{} ('{}')", kernel.op, kernel.id);
}

// Innermost first.
std::vector<const void*> all_running(base::ThreadRecord& thread) {
  std::vector<const void*> to;
  for (uint32_t at = thread.depth; at-- > ThreadHead::kInlineSlots;)
    if (const void* running = thread.running_at(at)) to.push_back(running);
  return to;
}

// How many repeat from the innermost on; 0: none do.
size_t period(const std::vector<const void*>& running) {
  for (size_t n = 1; 2 * n <= running.size(); ++n)
    if (std::equal(running.begin() + static_cast<ptrdiff_t>(n), running.end(), running.begin()))
      return n;
  return 0;
}

// Such as "a ('kernel.a') -> b ('kernel.b') -> a"; empty if nothing is known.
std::string describe_cycle(base::ThreadRecord& thread, std::string_view next) {
  constexpr size_t kShown = 8;
  const auto running = all_running(thread);
  if (running.empty()) return {};
  const size_t repeated = period(running);
  const size_t shown = std::min(repeated != 0 ? repeated : running.size(), kShown);
  std::string to = repeated != 0 ? "; the cycle is " : "; the innermost calls are ";
  if (repeated > shown) to += "... -> ";
  for (size_t i = shown; i-- > 0;) to += describe_running(running[i]) + " -> ";
  return to.append(next);
}

bool is_too_deep(base::ThreadRecord& thread, uint32_t most) {
  if (thread.depth <= ThreadHead::kInlineSlots) thread.nesting.refusing = false;  // it is back
  return thread.nesting.refusing || thread.depth >= most || base::stack_is_low();
}

// The error of a call that is too deep. `kind`: "op", "function" or "hook".
Status refuse(base::ThreadRecord& thread, uint32_t most, const char* kind, std::string_view name) {
  auto& nesting = thread.nesting;
  if (!nesting.refusing) {
    const std::string why =
        base::stack_is_low()
            ? fmt::format("{} '{}': calls nest too deep: the stack of the thread is full after {}",
                          kind, name, thread.depth)
            : fmt::format("{} '{}': calls nest too deep: expected at most {} on a thread", kind,
                          name, most);
    const std::string text = why + describe_cycle(thread, name);
    const size_t n = std::min(text.size(), sizeof nesting.why - 1);
    std::memcpy(nesting.why, text.data(), n);
    nesting.why[n] = '\0';
    nesting.refusing = thread.depth > ThreadHead::kInlineSlots;
  }
  nesting.refused_at = thread.depth + 1;
  nesting.refused_from = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return Status(Code::kWouldDeadlock, nesting.why);
}

HazardSlot& slot_for(ThreadHead& head, uint32_t most, const char* kind, const void* running) {
  auto& thread = static_cast<base::ThreadRecord&>(head);
  if (is_too_deep(thread, most)) refuse(thread, most, kind, describe_running(running)).or_throw();
  if (!thread.reserve_slot()) throw std::bad_alloc();
  HazardSlot& slot = thread.deep_slot(thread.depth);
  thread.deep_message(thread.depth, running);
  return slot;
}

}  // namespace

Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op) {
  if (is_too_deep(thread, most)) return refuse(thread, most, "op", op).release();
  return thread.reserve_slot() ? nullptr : Status::out_of_memory().release();
}

HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, const FunctionSite& function) {
  return slot_for(thread, most, "function", tagged(&function, kFunction));
}
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, const HookDeclaration& hook) {
  return slot_for(thread, most, "hook", tagged(&hook, kHook));
}

}  // namespace yard::dispatch
