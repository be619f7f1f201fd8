// SPDX-License-Identifier: Apache-2.0
// Calls that nest too deep: a kernel that calls its own op, or ops that call each other, without end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/stack.h"
#include "dispatch/call_steps.h"

namespace yard::detail {
namespace {

// The kernels that run, innermost first.
std::vector<const registry::Kernel*> running_kernels(base::ThreadRecord& thread) {
  std::vector<const registry::Kernel*> to;
  for (uint32_t at = thread.depth; at-- > ThreadHead::kInlineSlots;)
    if (const void* kernel = thread.kernel_at(at))
      to.push_back(static_cast<const registry::Kernel*>(kernel));
  return to;
}

// How many kernels repeat from the innermost on; 0: none do.
size_t period(const std::vector<const registry::Kernel*>& running) {
  for (size_t n = 1; 2 * n <= running.size(); ++n)
    if (std::equal(running.begin() + static_cast<ptrdiff_t>(n), running.end(), running.begin()))
      return n;
  return 0;
}

// Such as "a ('kernel.a') -> b ('kernel.b') -> a"; empty if no kernel is known.
std::string describe_cycle(base::ThreadRecord& thread, std::string_view op) {
  constexpr size_t kShown = 8;
  const auto running = running_kernels(thread);
  if (running.empty()) return {};
  const size_t repeated = period(running);
  const size_t shown = std::min(repeated != 0 ? repeated : running.size(), kShown);
  std::string to = repeated != 0 ? "; the cycle is " : "; the innermost calls are ";
  if (repeated > shown) to += "... -> ";
  for (size_t i = shown; i-- > 0;)
    to += fmt::format("{} ('{}') -> ", running[i]->op, running[i]->id);
  return to.append(op);
}

}  // namespace

Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, const Core& core, std::string_view op) {
  auto& nesting = thread.nesting;
  if (thread.depth <= ThreadHead::kInlineSlots) nesting.refusing = false;  // it is back
  if (!nesting.refusing) {
    const uint32_t most = core.max_call_depth.load(std::memory_order_relaxed);
    const bool full = base::stack_is_low();
    if (thread.depth < most && !full) return nullptr;
    const std::string why =
        full ? fmt::format("op '{}': calls nest too deep: the stack of the thread is full after {}",
                           op, thread.depth)
             : fmt::format("op '{}': calls nest too deep: expected at most {} on a thread", op,
                           most);
    const std::string text = why + describe_cycle(thread, op);
    const size_t n = std::min(text.size(), sizeof nesting.why - 1);
    std::memcpy(nesting.why, text.data(), n);
    nesting.why[n] = '\0';
    nesting.refusing = thread.depth > ThreadHead::kInlineSlots;
  }
  nesting.refused_at = thread.depth + 1;
  nesting.refused_from = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return Status(Code::kWouldDeadlock, nesting.why).release();
}

}  // namespace yard::detail
